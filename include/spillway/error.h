// Every failure that a user can meet: one stable code, one exit status, one line of text.
// A fault of the program itself is a CHECK, which aborts; input can never reach one.
// Thread rule: values; a worker's Error is carried to the main thread and printed there.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace spillway {

// Names and exit statuses: error.cc; for users docs/formats.md, "Exit codes and errors".
enum class ErrorCode {
  kInternal,
  kFlag,
  kPolicy,
  kMachine,
  kModelMalformed,
  kModelTruncated,
  kModelUnsupported,
  kModelInconsistent,
  kModelMissing,
  kUnsafe,
  kTokenizer,
  kInput,
  kGpuMemory,
  kCpuMemory,
  kDiskSpace,
  kSystemLimit,
  kIo,
  kCorrupt,
  kGpu,
  kStalled,
  kNonFinite,
  kRunInUse,
  kResume,
  kOutputExists,
  kPath,
  kInterrupted,
};

// "E-MODEL-TRUNCATED"; stable, part of the command line's contract.
std::string_view ErrorName(ErrorCode code);

// The exit status of the process.
int ExitStatus(ErrorCode code);

// what() is the message alone: names the file, flag or value, and ends with what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// "spillway: error[E-...]: message", one line of at most 300 bytes, control characters escaped.
std::string ErrorLine(ErrorCode code, std::string_view message);

// Makes file-supplied text safe to print: escapes control characters, marks that turn the direction
// of writing, and invalid UTF-8; cuts at `max_bytes`.
std::string Printable(std::string_view text, std::size_t max_bytes = 80);

// The same for text of several lines, uncut.
std::string PrintableLines(std::string_view text);

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace spillway

// An invariant of our own; never reachable from input. Prints and aborts.
#define SPILLWAY_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::spillway::CheckFailed(#condition, __FILE__, __LINE__))
