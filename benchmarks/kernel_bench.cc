// Measures the CPU kernels, beside the limits measured in the same run: the rate at which all
// threads read memory, and, where it was built with it, the fp32 product of libtorch (MKL) at the
// same shape. The subjects are in benchmarks/kernels.
//   kernel_bench [--quick] [--isa portable|avx2|avx512|avx512_vnni|amx | --compute bf16|int8]
//   [--threads N]
//   [--only matmul|attention|budget|bookkeeping|grouped|other] [--no-torch]
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "benchmarks/kernels/subjects.h"

namespace spillway::kernels {
namespace {

struct Subject {
  const char* name;
  void (*run)(Bench& bench);
};

constexpr Subject kSubjects[] = {{"matmul", BenchMatmul},   {"attention", BenchAttention},
                                 {"budget", BenchBudget},   {"bookkeeping", BenchBookkeeping},
                                 {"grouped", BenchGrouped}, {"other", BenchRows}};

struct CommandLine {
  Options options;
  std::string only;  // a subject; empty: all
};

[[noreturn]] void RefuseWords(const std::string& flag, const std::string& value) {
  fmt::print(stderr, "kernel_bench: {} {}: not understood, or not on this machine\n", flag, value);
  std::exit(2);
}

Isa IsaNamed(const std::string& name) {
  for (const Isa isa : SupportedIsas()) {
    if (IsaName(isa) == name) return isa;
  }
  RefuseWords("--isa", name);
}

CpuCompute ComputeNamed(const std::string& name) {
  for (const CpuCompute compute : {CpuCompute::kBf16, CpuCompute::kInt8}) {
    if (CpuComputeName(compute) == name) return compute;
  }
  RefuseWords("--compute", name);
}

int NumThreadsOf(const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || *end != '\0' || count < 1) RefuseWords("--threads", text);
  return count;
}

std::string SubjectNamed(const std::string& name) {
  const auto found = std::ranges::find(kSubjects, name, &Subject::name);
  if (found == std::end(kSubjects)) RefuseWords("--only", name);
  return name;
}

CommandLine ReadCommandLine(int argc, char** argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (flag == "--quick") {
      line.options.quick = true;
    } else if (flag == "--no-torch") {
      line.options.torch = false;
    } else if (flag == "--only") {
      line.only = SubjectNamed(value());
    } else if (flag == "--compute") {
      line.options.isa = BestIsa(ComputeNamed(value()));
    } else if (flag == "--threads") {
      line.options.num_threads = NumThreadsOf(value());
    } else if (flag == "--isa") {
      line.options.isa = IsaNamed(value());
    } else {
      RefuseWords(flag, "");
    }
  }
  return line;
}

}  // namespace
}  // namespace spillway::kernels

int main(int argc, char** argv) {
  using spillway::kernels::Bench;
  const auto line = spillway::kernels::ReadCommandLine(argc, argv);
  Bench bench(line.options);
  for (const auto& [name, run] : spillway::kernels::kSubjects) {
    if (line.only.empty() || line.only == name) run(bench);
  }
  return 0;
}
