#include "src/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <future>
#include <span>
#include <utility>

#include "spillway/error.h"
#include "spillway/rated_codes.h"
#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/base/size_text.h"
#include "src/base/stop_signal.h"
#include "src/profile/cpu_probe.h"
#include "src/profile/disk_probe.h"

namespace spillway {
namespace {

struct Lengths {
  int num_rounds;
  double cpu_round_s;
  double codes_round_s;  // of the CPU's products with codes, which are many
  double gpu_round_s;
  double disk_round_s;
  int64_t disk_file_bytes;
};
constexpr Lengths kFullLengths = {15, 0.12, 0.06, 0.05, 0.5, int64_t{1} << 30};
constexpr Lengths kQuickLengths = {7, 0.05, 0.025, 0.02, 0.2, int64_t{1} << 28};

constexpr int64_t kNarrowWidth = 1024;
constexpr std::size_t kSharedRows = 5;  // in kRowCounts: bound by memory and arithmetic alike
constexpr std::array<int64_t, 7> kRowCounts = {1, 4, 8, 16, 32, 64, 512};
constexpr std::array<int64_t, 8> kGpuRowCounts = {1, 4, 8, 16, 32, 64, 512, 2048};
constexpr std::array<int64_t, 4> kCodedRowCounts = {1, 16, 64, 512};

// A link and computes at work at the same time, round by round.
struct SharedRound {
  double link_bytes_per_s = 0.0;
  double compute_per_s = 0.0;
};
struct SharedMeasurement {
  Link link = Link::kDiskRead;
  std::function<double(double)> move;  // for so many seconds: bytes per second
  std::vector<SharedRound> rounds;
};

// Units per second of calls that return units, for at least so long.
double RateOf(const std::function<int64_t()>& call, double seconds) {
  ThrowIfStopRequested();
  int64_t units = 0;
  const double begin_s = NowSeconds();
  double elapsed_s = 0.0;
  do {
    units += call();
    elapsed_s = NowSeconds() - begin_s;
  } while (elapsed_s < seconds);
  return static_cast<double>(units) / elapsed_s;
}

// Processor time of all threads of this process.
double ProcessorSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Vectors stay where they are from now on: measurements write to their elements.
void MakeRoom(DeviceRates& rates, std::size_t num_row_counts) {
  rates.matmul.resize(num_row_counts);
  for (const auto& [type, key, name] : kRatedCodes)
    rates.matmul_codes[type].resize(kCodedRowCounts.size());
}

void RefuseLittleMemory(int64_t needed) {
  const int64_t available = AvailableMemoryBytes();
  if (available >= needed) return;
  throw Error(ErrorCode::kCpuMemory,
              fmt::format("profile needs {} of memory and {} is available; close other programs",
                          SizeText(needed), SizeText(available)));
}

class Profiler {
 public:
  Profiler(const DiskFolder& folder, const ProfileOptions& options)
      : options_(options),
        lengths_(options.length == ProfileLength::kQuick ? kQuickLengths : kFullLengths),
        pool_(options.num_threads),
        cpu_(pool_, options.isa),
        disk_(folder, lengths_.disk_file_bytes) {
    MakeRoom(result_.rates.cpu, kRowCounts.size());
    if (options.gpu != nullptr) MakeRoom(result_.rates.gpu, kGpuRowCounts.size());
  }

  MeasuredMachine Run() {
    AddMeasurements();
    if (options_.gpu != nullptr) AddGpuMeasurements();
    // Rounds in turns, so that a moment in which something else runs costs each rate one round and
    // not one rate all of them. The first round warms up and does not count.
    for (int round = 0; round <= lengths_.num_rounds; ++round) {
      options_.note(fmt::format("measuring: round {} of {}", round, lengths_.num_rounds));
      for (Measurement& measurement : measurements_) {
        const double rate = measurement.round();
        if (round > 0) measurement.rounds.push_back(rate);
      }
      for (SharedMeasurement& shared : shared_) {
        const SharedRound both = Share(shared);
        if (round > 0) shared.rounds.push_back(both);
      }
    }
    for (Measurement& measurement : measurements_) result_.lines.push_back(Conclude(measurement));
    result_.rates.cpu.launch_s = RoundedRate(1.0 / launches_per_s_);
    if (options_.gpu != nullptr)
      result_.rates.gpu.launch_s = RoundedRate(1.0 / gpu_launches_per_s_);
    ConcludeDisk();
    for (const SharedMeasurement& shared : shared_) ConcludeShared(shared);
    result_.processor_share = processor_s_ / (products_s_ * options_.num_threads);
    result_.disk_way = disk_.Way();
    return std::move(result_);
  }

 private:
  void AddShared(Link link, std::function<double(double)> move) {
    shared_.push_back({link, std::move(move), {}});
  }

  SharedRound Share(const SharedMeasurement& shared) {
    std::future<double> link =
        std::async(std::launch::async, [&] { return shared.move(lengths_.cpu_round_s); });
    SharedRound round;
    const double begin_s = NowSeconds();
    double operations = 0.0;
    while (link.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      operations += static_cast<double>(cpu_.Multiply(kRowCounts[kSharedRows]));
    }
    round.compute_per_s = operations / (NowSeconds() - begin_s);
    round.link_bytes_per_s = link.get();
    return round;
  }

  // Their means: which core the link's thread shares changes from round to round, and in a run too.
  void ConcludeShared(const SharedMeasurement& shared) {
    const double link_alone = result_.rates.link_bytes_per_s[shared.link];
    const double compute_alone = result_.rates.cpu.matmul[kSharedRows].flops_per_s;
    SharedPace mean = {0.0, 0.0};
    for (const SharedRound& round : shared.rounds) {
      const auto count = static_cast<double>(shared.rounds.size());
      mean.link_frac += std::min(1.0, round.link_bytes_per_s / link_alone) / count;
      mean.compute_frac += std::min(1.0, round.compute_per_s / compute_alone) / count;
    }
    for (double* frac : {&mean.link_frac, &mean.compute_frac})
      *frac = std::clamp(std::round(100.0 * *frac) / 100.0, 0.01, 1.0);
    result_.rates.beside_compute[shared.link] = mean;
    result_.lines.push_back({fmt::format("{} beside products", LinkName(shared.link)), "% of alone",
                             100.0 * mean.link_frac, 0.0, false});
    result_.lines.push_back(
        {fmt::format("  products beside it"), "% of alone", 100.0 * mean.compute_frac, 0.0, false});
  }

  void AddDisk(std::string name, double (DiskProbe::*move)(double), double* rate) {
    measurements_.push_back({std::move(name),
                             RateUnit::kBytes,
                             false,
                             [this, move] { return (disk_.*move)(lengths_.disk_round_s); },
                             rate,
                             {}});
  }

  // Computes disk_both_frac from as many bytes each way: the time that both would take one after
  // the other, halved where they have nothing in common, over the time that they took together.
  void ConcludeDisk() {
    const PerLink<double>& alone = result_.rates.link_bytes_per_s;
    const double both = disk_both_bytes_per_s_ / 4.0 *
                        (1.0 / alone[Link::kDiskRead] + 1.0 / alone[Link::kDiskWrite]);
    result_.rates.disk_both_frac = std::clamp(std::round(100.0 * both) / 100.0, 0.01, 1.0);
  }

  void AddCpu(std::string name, RateUnit unit, std::function<int64_t()> call, double* rate) {
    AddCpuRounds(std::move(name), unit, std::move(call), lengths_.cpu_round_s, rate);
  }

  // Rounds of so many seconds.
  void AddCpuRounds(std::string name, RateUnit unit, std::function<int64_t()> call, double seconds,
                    double* rate) {
    measurements_.push_back({std::move(name),
                             unit,
                             true,
                             [this, unit, seconds, call = std::move(call)] {
                               const double begin_s = NowSeconds();
                               const double processor_begin_s = ProcessorSeconds();
                               const double rate = RateOf(call, seconds);
                               if (unit == RateUnit::kOperations) {
                                 products_s_ += NowSeconds() - begin_s;
                                 processor_s_ += ProcessorSeconds() - processor_begin_s;
                               }
                               return rate;
                             },
                             rate,
                             {}});
  }

  void AddCpu(std::string name, RateUnit unit, int64_t (CpuProbe::*work)(), double* rate) {
    AddCpu(
        std::move(name), unit, [this, work] { return (cpu_.*work)(); }, rate);
  }

  void AddCoded(std::string_view name, DType weights, std::vector<MatmulRate>& rates) {
    for (std::size_t i = 0; i < kCodedRowCounts.size(); ++i) {
      const int64_t rows = rates[i].rows = kCodedRowCounts[i];
      AddCpuRounds(
          fmt::format("{}, rows {}", name, rows), RateUnit::kOperations,
          [this, rows, weights] { return cpu_.Multiply(rows, CpuProbe::kHidden, weights); },
          lengths_.codes_round_s, &rates[i].flops_per_s);
    }
  }

  void AddMeasurements() {
    AddDiskAndLinks();
    AddCpuProducts();
    AddCpuAttention();
    AddCpuRest();
    AddShared(Link::kDiskRead, [this](double seconds) { return disk_.Read(seconds); });
    AddShared(Link::kDiskWrite, [this](double seconds) { return disk_.Write(seconds); });
  }

  void AddDiskAndLinks() {
    PerLink<double>& links = result_.rates.link_bytes_per_s;
    AddDisk("disk_read", &DiskProbe::Read, &links[Link::kDiskRead]);
    AddDisk("disk_write", &DiskProbe::Write, &links[Link::kDiskWrite]);
    AddDisk("  both at once", &DiskProbe::ReadAndWrite, &disk_both_bytes_per_s_);
    if (options_.gpu == nullptr) AddEmulatedLinks();
  }

  void AddCpuProducts() {
    DeviceRates& cpu = result_.rates.cpu;
    AddCpu("memory read", RateUnit::kBytes, &CpuProbe::ReadMemory, &cpu.memory_bytes_per_s);
    for (std::size_t i = 0; i < kRowCounts.size(); ++i) {
      const int64_t rows = cpu.matmul[i].rows = kRowCounts[i];
      AddCpu(
          fmt::format("matmul, rows {}", rows), RateUnit::kOperations,
          [this, rows] { return cpu_.Multiply(rows); }, &cpu.matmul[i].flops_per_s);
      AddCpu(
          fmt::format("  narrow, rows {}", rows), RateUnit::kOperations,
          [this, rows] { return cpu_.Multiply(rows, kNarrowWidth); },
          &cpu.matmul[i].narrow_flops_per_s);
    }
    for (const auto& [type, key, name] : kRatedCodes) AddCoded(name, type, cpu.matmul_codes[type]);
  }

  void AddCpuAttention() {
    DeviceRates& cpu = result_.rates.cpu;
    AddCpu(
        "prefill attention", RateUnit::kOperations, [this] { return cpu_.AttendPrefill(128, 512); },
        &cpu.prefill_attention_flops_per_s);
    AddCpu(
        "  narrow heads", RateUnit::kOperations, [this] { return cpu_.AttendPrefill(64, 512); },
        &cpu.narrow_attention_flops_per_s);
    AddCpu(
        "  short prompts", RateUnit::kOperations, [this] { return cpu_.AttendPrefill(128, 128); },
        &cpu.short_attention_flops_per_s);
    AddCpu("  evicting", RateUnit::kOperations, &CpuProbe::EvictPrefill,
           &cpu.evicting_prefill_flops_per_s);
    AddCpu("decode attention", RateUnit::kBytes, &CpuProbe::AttendDecode,
           &cpu.decode_attention_bytes_per_s);
    AddCpu("  evicting", RateUnit::kBytes, &CpuProbe::EvictDecode,
           &cpu.evicting_decode_bytes_per_s);
  }

  void AddCpuRest() {
    DeviceRates& cpu = result_.rates.cpu;
    AddCpu("first touch", RateUnit::kBytes, &CpuProbe::TouchFirst, &cpu.first_touch_bytes_per_s);
    AddCpu("layer norm", RateUnit::kElements, &CpuProbe::Normalize, &cpu.norm_elements_per_s);
    AddCpu("greedy token", RateUnit::kElements, &CpuProbe::ChooseToken, &cpu.logits_per_s);
    AddCpu("launch", RateUnit::kCalls, &CpuProbe::Launch, &launches_per_s_);
  }

  // The copies of an emulated GPU, which are the processor's work.
  void AddEmulatedLinks() {
    PerLink<double>& links = result_.rates.link_bytes_per_s;
    AddCpu("cpu_to_gpu (copy)", RateUnit::kBytes, &CpuProbe::CopyToDevice, &links[Link::kCpuToGpu]);
    AddCpu("gpu_to_cpu (copy)", RateUnit::kBytes, &CpuProbe::CopyFromDevice,
           &links[Link::kGpuToCpu]);
    AddShared(Link::kCpuToGpu, [this](double seconds) {
      return RateOf([this] { return cpu_.CopyToDevice(); }, seconds);
    });
    AddShared(Link::kGpuToCpu, [this](double seconds) {
      return RateOf([this] { return cpu_.CopyFromDevice(); }, seconds);
    });
  }

  void AddGpu(std::string name, RateUnit unit, std::function<GpuProbe::Work()> call, double* rate) {
    const auto round = [this, call = std::move(call)] {
      ThrowIfStopRequested();
      GpuProbe::Work sum;
      const double begin_s = NowSeconds();
      do {
        const GpuProbe::Work work = call();
        sum.units += work.units;
        sum.seconds += work.seconds;
      } while (NowSeconds() - begin_s < lengths_.gpu_round_s);
      return sum.units / sum.seconds;
    };
    measurements_.push_back({std::move(name), unit, true, round, rate, {}});
  }

  void AddGpu(std::string name, RateUnit unit, GpuProbe::Work (GpuProbe::*work)(), double* rate) {
    AddGpu(
        std::move(name), unit, [this, work] { return (options_.gpu->*work)(); }, rate);
  }

  void AddGpuProducts(std::string_view name, DType weights, std::span<const int64_t> row_counts,
                      std::vector<MatmulRate>& rates) {
    for (std::size_t i = 0; i < row_counts.size(); ++i) {
      const int64_t rows = rates[i].rows = row_counts[i];
      AddGpu(
          fmt::format("gpu {}, rows {}", name, rows), RateUnit::kOperations,
          [this, rows, weights] {
            return options_.gpu->Multiply(rows, CpuProbe::kHidden, weights);
          },
          &rates[i].flops_per_s);
    }
  }

  void AddGpuMeasurements() {
    AddGpuLinks();
    AddGpuProducts();
    AddGpuAttention();
    AddGpuRest();
  }

  void AddGpuLinks() {
    PerLink<double>& links = result_.rates.link_bytes_per_s;
    AddGpu("cpu_to_gpu", RateUnit::kBytes, &GpuProbe::CopyToGpu, &links[Link::kCpuToGpu]);
    AddGpu("gpu_to_cpu", RateUnit::kBytes, &GpuProbe::CopyFromGpu, &links[Link::kGpuToCpu]);
  }

  void AddGpuProducts() {
    GpuProbe* probe = options_.gpu;
    DeviceRates& gpu = result_.rates.gpu;
    AddGpu("gpu memory", RateUnit::kBytes, &GpuProbe::ReadMemory, &gpu.memory_bytes_per_s);
    AddGpuProducts("matmul", DType::kF16, kGpuRowCounts, gpu.matmul);
    for (std::size_t i = 0; i < kGpuRowCounts.size(); ++i) {
      AddGpu(
          fmt::format("  narrow, rows {}", kGpuRowCounts[i]), RateUnit::kOperations,
          [probe, i] { return probe->Multiply(kGpuRowCounts[i], kNarrowWidth, DType::kF16); },
          &gpu.matmul[i].narrow_flops_per_s);
    }
    for (const auto& [type, key, name] : kRatedCodes)
      AddGpuProducts(name, type, kCodedRowCounts, gpu.matmul_codes[type]);
  }

  void AddGpuAttention() {
    GpuProbe* probe = options_.gpu;
    DeviceRates& gpu = result_.rates.gpu;
    AddGpu(
        "gpu prefill attention", RateUnit::kOperations,
        [probe] { return probe->AttendPrefill(128, 512); }, &gpu.prefill_attention_flops_per_s);
    AddGpu(
        "  narrow heads", RateUnit::kOperations, [probe] { return probe->AttendPrefill(64, 512); },
        &gpu.narrow_attention_flops_per_s);
    AddGpu(
        "  short prompts", RateUnit::kOperations,
        [probe] { return probe->AttendPrefill(128, 128); }, &gpu.short_attention_flops_per_s);
    AddGpu("  evicting", RateUnit::kOperations, &GpuProbe::EvictPrefill,
           &gpu.evicting_prefill_flops_per_s);
    AddGpu("gpu decode attention", RateUnit::kBytes, &GpuProbe::AttendDecode,
           &gpu.decode_attention_bytes_per_s);
    AddGpu("  evicting", RateUnit::kBytes, &GpuProbe::EvictDecode,
           &gpu.evicting_decode_bytes_per_s);
  }

  void AddGpuRest() {
    AddGpu("gpu layer norm", RateUnit::kElements, &GpuProbe::Normalize,
           &result_.rates.gpu.norm_elements_per_s);
    AddGpu("gpu launch", RateUnit::kCalls, &GpuProbe::Launch, &gpu_launches_per_s_);
  }

  const ProfileOptions& options_;
  Lengths lengths_;
  ThreadPool pool_;
  CpuProbe cpu_;
  DiskProbe disk_;
  MeasuredMachine result_;
  double launches_per_s_ = 0.0;
  double gpu_launches_per_s_ = 0.0;
  double products_s_ = 0.0;   // in which all compute threads had work,
  double processor_s_ = 0.0;  // and the time of the processor they got in it
  std::vector<Measurement> measurements_;
  double disk_both_bytes_per_s_ = 0.0;
  std::vector<SharedMeasurement> shared_;
};

// Share of the processor below which a second profile may not agree within 10 %.
constexpr double kQuietShare = 0.95;
constexpr double kQuietSpread = 0.33;  // of a quiet machine's rounds: under 0.1, but for few

}  // namespace

std::string DisturbanceOf(const MeasuredMachine& measured) {
  if (measured.processor_share < kQuietShare) {
    return fmt::format("others took {:.0f} % of the processor",
                       100.0 * (1.0 - measured.processor_share));
  }
  for (const MeasuredRate& line : measured.lines) {
    if (!line.steady || line.spread <= kQuietSpread) continue;
    return fmt::format("{}: the best round had {:.0f} % more than their median", line.name,
                       100.0 * line.spread);
  }
  return "";
}

MeasuredMachine MeasureMachine(const DiskFolder& folder, const ProfileOptions& options) {
  RefuseLittleMemory(CpuProbe::Bytes(options.num_threads, options.isa) + DiskProbe::MemoryBytes());
  options.note("filling memory and a file");
  return Profiler(folder, options).Run();
}

}  // namespace spillway
