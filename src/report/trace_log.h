// TraceLog: takes the events of a run from all its threads and writes them to the --trace file.
// Where no trace was asked for there is none: its users hold a pointer that is null then.
// Thread rule: Add by any thread; the rest by the main thread.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "spillway/plan.h"
#include "src/base/report_file.h"
#include "src/report/chrome_trace.h"
#include "src/report/trace_ring.h"

namespace spillway {

class TraceLog {
 public:
  // Creates the file; a thread of its own fills it. Lifetime: `file` outlives the log.
  // Throws: Error kPath, kSystemLimit.
  TraceLog(const ReportFile& file, const Plan& plan);
  // Finishes as well as it can, so that a run that an Error ends has its trace too.
  ~TraceLog();
  TraceLog(const TraceLog&) = delete;
  TraceLog& operator=(const TraceLog&) = delete;

  // Allocates nothing and never waits: an event that finds no room is dropped, and counted in the
  // file.
  void Add(const TraceEvent& event) noexcept { ring_.Push(event); }

  // Puts the file in place with all that was added. Nothing may be added afterwards.
  // Throws: Error kIo, kDiskSpace, also of earlier writes; there is no file then.
  void Finish();

 private:
  void Run() noexcept;
  void Drain();
  void Stop();

  const ReportFile& file_;
  ChromeTrace trace_;
  TraceRing ring_;
  bool finished_ = false;
  std::exception_ptr failure_;  // of the writer, which ends with it
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;  // guarded by mutex_
  std::thread writer_;
};

}  // namespace spillway
