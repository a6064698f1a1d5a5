#include "src/report/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

namespace spillway {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;
// Bytes of one event at most, name and six numbers of up to 20 digits included.
constexpr std::size_t kMaxEventBytes = 1 << 10;

constexpr std::string_view LaneName(TraceLane lane) {
  if (lane == TraceLane::kCompute) return "compute";
  if (lane == TraceLane::kWaiting) return "waiting";
  return LinkName(
      static_cast<Link>(static_cast<int>(lane) - static_cast<int>(TraceLane::kDiskRead)));
}

constexpr std::string_view SubjectName(TraceSubject subject) {
  switch (subject) {
    case TraceSubject::kCompute:
      return "compute";
    case TraceSubject::kWeights:
      return "weights";
    case TraceSubject::kKv:
      return "kv";
    case TraceSubject::kHidden:
      return "activations";
    case TraceSubject::kStores:
      return "stores";
  }
  return {};
}

}  // namespace

ChromeTrace::ChromeTrace(Descriptor file, std::string name, const Plan& plan, double begin_s)
    : file_(std::move(file)), name_(std::move(name)), begin_s_(begin_s) {
  for (const PlannedLayer& layer : plan.layers)
    layers_.push_back({layer.part, layer.decoder_layer});
  buffer_.reserve(kBufferBytes);
  buffer_ +=
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
      R"({"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"spillway"}})";
  for (int lane = 0; lane < kNumTraceLanes; ++lane) AddTrack(static_cast<TraceLane>(lane));
}

void ChromeTrace::Write(const TraceEvent& event) {
  std::visit([this](const auto& value) { Append(value); }, event);
  // An event may bring a track's name with it.
  if (buffer_.size() + 2 * kMaxEventBytes > kBufferBytes) Flush();
}

void ChromeTrace::End(int64_t num_dropped) {
  fmt::format_to(std::back_inserter(buffer_),
                 "\n],\"otherData\":{{\"version\":1,\"dropped_events\":{}}}}}\n", num_dropped);
  Flush();
}

void ChromeTrace::Append(const TraceSpan& span) {
  const int64_t begin_ns = Nanoseconds(span.begin_s);
  const int64_t end_ns = Nanoseconds(span.end_s);
  const std::size_t track = TakeTrack(span.lane, begin_ns, end_ns);
  buffer_ += ",\n{\"name\":\"";
  AppendName(span.label);
  fmt::format_to(std::back_inserter(buffer_), R"(","cat":"{}","ph":"X","pid":1,"tid":{})",
                 SubjectName(span.label.subject), track);
  AppendMicroseconds("ts", begin_ns);
  AppendMicroseconds("dur", end_ns - begin_ns);
  buffer_ += ",\"args\":{";
  AppendArgument("pass", span.label.cell.pass);
  AppendArgument("layer", span.label.cell.layer);
  AppendArgument("batch", span.label.cell.batch);
  if (span.bytes > 0) AppendArgument("bytes", span.bytes);
  buffer_ += "}}";
}

void ChromeTrace::Append(const TierSample& sample) {
  fmt::format_to(std::back_inserter(buffer_), ",\n{{\"name\":\"{} bytes\",\"ph\":\"C\",\"pid\":1",
                 TierName(sample.tier));
  AppendMicroseconds("ts", Nanoseconds(sample.at_s));
  buffer_ += ",\"args\":{";
  AppendArgument("weights", sample.weight_bytes);
  AppendArgument("kv", sample.kv_bytes);
  AppendArgument("staging", sample.staging_bytes);
  buffer_ += "}}";
}

void ChromeTrace::Append(const RowSample& sample) {
  buffer_ += ",\n{\"name\":\"rows\",\"ph\":\"C\",\"pid\":1";
  AppendMicroseconds("ts", Nanoseconds(sample.at_s));
  buffer_ += ",\"args\":{";
  AppendArgument("running", sample.rows_running);
  buffer_ += "}}";
}

void ChromeTrace::AppendName(const TraceLabel& label) {
  const auto out = std::back_inserter(buffer_);
  const auto& [pass, layer, batch] = label.cell;
  if (label.subject == TraceSubject::kStores) {
    buffer_ += "stores";
    return;
  }
  const Layer& at = layers_[static_cast<std::size_t>(layer)];
  if (label.subject == TraceSubject::kWeights) {
    fmt::format_to(out, "weights of layer {}", layer);
  } else if (label.subject == TraceSubject::kKv) {
    fmt::format_to(out, "KV of block {}, batch {}", at.decoder_layer, batch);
  } else if (label.subject == TraceSubject::kHidden) {
    fmt::format_to(out, "activations of layer {}, batch {}", layer, batch);
  } else if (at.decoder_layer >= 0) {
    const bool mlp = at.part == ComputePart::kMlp;
    fmt::format_to(out, "{} {}, batch {}", mlp ? "MLP" : ComputePartName(at.part), at.decoder_layer,
                   batch);
  } else {
    fmt::format_to(out, "{}, batch {}", ComputePartName(at.part), batch);
  }
}

void ChromeTrace::AppendMicroseconds(const char* key, int64_t ns) {
  fmt::format_to(std::back_inserter(buffer_), ",\"{}\":{}.{:03}", key, ns / 1000, ns % 1000);
}

void ChromeTrace::AppendArgument(const char* key, int64_t value) {
  if (value < 0) return;
  fmt::format_to(std::back_inserter(buffer_), "{}\"{}\":{}", buffer_.back() == '{' ? "" : ",", key,
                 value);
}

// The thread number of the track: the one that has rested least.
std::size_t ChromeTrace::TakeTrack(TraceLane lane, int64_t begin_ns, int64_t end_ns) {
  Lane& state = lanes_[static_cast<std::size_t>(lane)];
  auto& ends = state.busy_until_ns;
  std::size_t best = state.num_tracks;
  for (std::size_t track = 0; track < state.num_tracks; ++track) {
    if (ends[track] > begin_ns) continue;
    if (best == state.num_tracks || ends[track] > ends[best]) best = track;
  }
  if (best == kMaxTracks) {
    best = kMaxTracks - 1;
  } else if (best == state.num_tracks) {
    AddTrack(lane);
  }
  ends[best] = std::max(ends[best], end_ns);
  return static_cast<std::size_t>(lane) * kMaxTracks + best + 1;
}

void ChromeTrace::AddTrack(TraceLane lane) {
  const std::size_t track = lanes_[static_cast<std::size_t>(lane)].num_tracks++;
  const std::size_t thread = static_cast<std::size_t>(lane) * kMaxTracks + track + 1;
  const auto out = std::back_inserter(buffer_);
  fmt::format_to(out, ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{}", thread);
  fmt::format_to(out, ",\"args\":{{\"name\":\"{}", LaneName(lane));
  if (track > 0) fmt::format_to(out, " {}", track + 1);
  fmt::format_to(out, "\"}}}},\n{{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":{}",
                 thread);
  fmt::format_to(out, ",\"args\":{{\"sort_index\":{}}}}}", thread);
}

// Rounded before durations are formed, so that what does not overlap does not do so in print.
int64_t ChromeTrace::Nanoseconds(double at_s) const {
  return std::max<int64_t>(0, std::llround((at_s - begin_s_) * 1e9));
}

void ChromeTrace::Flush() {
  WriteAll(file_, buffer_, name_);
  buffer_.clear();
}

}  // namespace spillway
