// A request to stop, from a signal: the run ends at the next safe point and keeps what is finished.
// Thread rule: StopRequested from any thread.
#pragma once

namespace spillway {

// SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask for a stop; a second SIGINT or SIGTERM ends the process
// at once. SIGPIPE and SIGXFSZ are ignored: the failing write reports them. A SIGHUP that is
// ignored (nohup) stays ignored.
void InstallStopSignals();

// Time that SIGTERM and SIGUSR1 leave for what runs to end by itself: the stop is due when it has
// passed. SIGINT and SIGHUP leave none.
void SetStopGrace(double seconds);

// A stop was asked for, due or not: nothing new begins.
bool StopRequested();

// Throws: Error kInterrupted when a stop was asked for and is due.
void ThrowIfStopRequested();

// Throws: Error kInterrupted when a stop was asked for: what runs has ended.
void ThrowIfNothingMayBegin();

}  // namespace spillway
