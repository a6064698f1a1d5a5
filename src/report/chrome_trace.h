// ChromeTrace: events as JSON that opens in Perfetto and chrome://tracing (Trace Event Format,
// object form). Thread rule: one thread at a time. Allocates in the constructor only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "spillway/compute_part.h"
#include "spillway/plan.h"
#include "src/base/descriptor.h"
#include "src/report/trace_event.h"

namespace spillway {

class ChromeTrace {
 public:
  // Writes to `file`, which errors call `name`; times count from begin_s.
  ChromeTrace(Descriptor file, std::string name, const Plan& plan, double begin_s);

  // Throws: Error kIo, kDiskSpace.
  void Write(const TraceEvent& event);

  // Completes the JSON; the metadata says how many events are missing. Once, at the end.
  // Throws: Error kIo, kDiskSpace.
  void End(int64_t num_dropped);

  const Descriptor& file() const { return file_; }

 private:
  // Viewers show no overlap within a thread, so a lane has as many as it has transfers at a time.
  // Of the disk two streams have up to 16 each; events beyond the last track would overlap in it.
  static constexpr std::size_t kMaxTracks = 32;
  struct Lane {
    std::size_t num_tracks = 0;
    std::array<int64_t, kMaxTracks> busy_until_ns{};
  };
  struct Layer {
    ComputePart part;
    int64_t decoder_layer;
  };

  void Append(const TraceSpan& span);
  void Append(const TierSample& sample);
  void Append(const RowSample& sample);
  void AppendName(const TraceLabel& label);
  void AppendMicroseconds(const char* key, int64_t ns);
  void AppendArgument(const char* key, int64_t value);
  std::size_t TakeTrack(TraceLane lane, int64_t begin_ns, int64_t end_ns);
  void AddTrack(TraceLane lane);
  int64_t Nanoseconds(double at_s) const;
  void Flush();

  Descriptor file_;
  std::string name_;
  std::vector<Layer> layers_;
  double begin_s_;
  std::array<Lane, kNumTraceLanes> lanes_;
  std::string buffer_;
};

}  // namespace spillway
