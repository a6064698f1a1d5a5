#include "src/report/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "spillway/error.h"
#include "src/base/size_text.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxTracks = 1000;  // of a hostile file

struct Track {
  std::string name;
  int64_t num_spans = 0;
  double busy_us = 0.0;
  double bytes = 0.0;
};

// Follows the parser's events; one event of the trace is held at a time.
class TraceReader : public nlohmann::json_sax<json> {
 public:
  std::map<int64_t, Track> tracks;  // by thread number, which is their order
  double end_us = 0.0;
  double dropped = 0.0;
  bool has_events = false;
  std::string fault;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Number(value); }
  bool binary(binary_t&) override { return false; }
  bool start_array(std::size_t) override { return Open(); }
  bool end_array() override { return Close(); }

  bool string(string_t& value) override {
    if (At({"traceEvents", "", "name"})) event_.name = value;
    if (At({"traceEvents", "", "ph"})) event_.phase = value;
    if (At({"traceEvents", "", "args", "name"})) event_.track_name = value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (keys_.size() == 2) event_ = {};
    return Open();
  }

  bool end_object() override {
    const bool event = keys_.size() == 3 && keys_[0] == "traceEvents";
    if (event && !TakeEvent()) return false;
    return Close();
  }

  bool key(string_t& name) override {
    if (keys_.size() == 1 && name == "traceEvents") has_events = true;
    keys_.back() = name;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fault = fmt::format("is not valid JSON at byte {}", position);
    return false;
  }

 private:
  struct Event {
    std::string name;
    std::string phase;
    std::string track_name;
    double thread = 0.0;
    double begin_us = 0.0;
    double length_us = 0.0;
    double bytes = 0.0;
  };

  bool Open() {
    constexpr std::size_t kMaxDepth = 16;
    if (keys_.size() == kMaxDepth) fault = "is nested too deep for a trace";
    keys_.emplace_back();
    return fault.empty();
  }

  bool Close() {
    keys_.pop_back();
    return true;
  }

  // Tells whether the value that comes lies at these keys; "" is any item of an array.
  bool At(std::initializer_list<std::string_view> path) const {
    return std::ranges::equal(keys_, path);
  }

  bool Number(double value) {
    if (At({"traceEvents", "", "tid"})) event_.thread = value;
    if (At({"traceEvents", "", "ts"})) event_.begin_us = value;
    if (At({"traceEvents", "", "dur"})) event_.length_us = value;
    if (At({"traceEvents", "", "args", "bytes"})) event_.bytes = value;
    if (At({"otherData", "dropped_events"})) dropped = value;
    return true;
  }

  bool TakeEvent() {
    const bool span = event_.phase == "X";
    const bool name = event_.phase == "M" && event_.name == "thread_name";
    if (!span && !name) return true;
    if (!(event_.thread >= 0.0 && event_.thread < 1e9)) return Refuse("has a bad thread number");
    Track& track = tracks[static_cast<int64_t>(event_.thread)];
    if (tracks.size() > kMaxTracks) return Refuse("has too many threads for a trace of ours");
    if (name) track.name = event_.track_name;
    if (!span) return true;
    ++track.num_spans;
    track.busy_us += event_.length_us;
    track.bytes += event_.bytes;
    end_us = std::max(end_us, event_.begin_us + event_.length_us);
    return true;
  }

  bool Refuse(std::string what) {
    fault = std::move(what);
    return false;
  }

  std::vector<std::string> keys_;  // of the containers around the value
  Event event_;
};

// Tracks of a lane ("disk_read", "disk_read 2") as one, in the order of the first.
std::vector<Track> Lanes(const TraceReader& reader) {
  std::vector<Track> lanes;
  for (const auto& [thread, track] : reader.tracks) {
    const std::string name = track.name.substr(0, track.name.find(' '));
    auto lane = std::ranges::find(lanes, name, &Track::name);
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), {name});
    lane->num_spans += track.num_spans;
    lane->busy_us += track.busy_us;
    lane->bytes += track.bytes;
  }
  return lanes;
}

}  // namespace

bool LooksLikeTrace(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string start(256, '\0');
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  return start.find("\"traceEvents\"") != std::string::npos;
}

std::string DescribeTrace(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  TraceReader reader;
  // The parser takes a NUL byte for the end.
  const bool whole = json::sax_parse(in, &reader) && in.peek() == std::ifstream::traits_type::eof();
  if (!whole || !reader.has_events) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {}; write it again with --trace", Printable(file.string()),
                            whole                  ? "holds no traceEvents"
                            : reader.fault.empty() ? "holds text behind a NUL byte"
                                                   : reader.fault));
  }
  int64_t num_spans = 0;
  std::string text;
  for (const Track& lane : Lanes(reader)) {
    num_spans += lane.num_spans;
    if (lane.num_spans == 0) continue;
    text += fmt::format("{:<11} {} spans, {:.3f} s in all", Printable(lane.name, 20),
                        lane.num_spans, lane.busy_us / 1e6);
    if (lane.bytes > 0.0) {
      text += fmt::format(", {}", SizeText(static_cast<int64_t>(std::min(lane.bytes, 1e18))));
    }
    text += '\n';
  }
  return fmt::format("trace       {} spans over {:.3f} s, {:.0f} dropped\n", num_spans,
                     reader.end_us / 1e6, reader.dropped) +
         text;
}

}  // namespace spillway
