// LineStream: lines of a pipe as they come. A thread reads ahead while others compute, up to a
// number of bytes, so that a writer is held up only where it is far ahead.
// Thread rule: one thread; the reading one is the stream's own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "src/base/descriptor.h"
#include "src/requests/line_source.h"  // Line

namespace spillway {

struct StreamLimits {
  int64_t line_bytes = 16 << 20;   // longer lines are passed over and marked
  int64_t ahead_bytes = 64 << 20;  // of lines that are read and not taken; one line may pass it
};

// Something that a stream has to tell.
struct Arrival {
  enum class Kind { kLine, kPause, kEnd };

  // The line as a view. Lifetime: the arrival's. Requires: a line.
  Line AsLine() const;

  Kind kind = Kind::kEnd;
  int64_t number = 0;     // of the line in the stream, 1-based
  std::string text;       // without its end; of a line too long: empty
  int64_t num_bytes = 0;  // as it stands in the stream, without its end
  bool too_long = false;
};

class LineStream {
 public:
  // `name` stands in errors. Lines end in "\n" or "\r\n"; the last one needs no end.
  // Throws: Error kSystemLimit.
  LineStream(Descriptor file, std::string name, const StreamLimits& limits);
  ~LineStream();
  LineStream(const LineStream&) = delete;
  LineStream& operator=(const LineStream&) = delete;

  // The next line, however long it takes. Throws: as NextWithin.
  Arrival Next();

  // The next line, or kPause where none comes in so many seconds.
  // Throws: Error kIo, kInput (reading failed), kInterrupted (nothing more may begin).
  Arrival NextWithin(double seconds);

 private:
  void ReadAll();
  bool HasBytes() const;
  void Split(std::string& unread);
  void Put(std::string line);
  void End(std::exception_ptr error);
  Arrival Take();

  const Descriptor file_;
  const std::string name_;
  const StreamLimits limits_;
  int64_t num_lines_ = 0;      // the reading thread's
  int64_t skipped_bytes_ = 0;  // the reading thread's: of a line too long, so far

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Arrival> waiting_;  // guarded, as all below
  int64_t waiting_bytes_ = 0;
  bool ended_ = false;
  bool closing_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace spillway
