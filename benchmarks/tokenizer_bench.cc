// Encoding rate of a folder's tokenizer on one thread.
// Usage: tokenizer_bench FOLDER TEXT_FILE. Lines are encoded one by one, again and again for two
// seconds; prints "MB/s TOKENS/s".
#include <chrono>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "src/tokenizer/tokenizer.h"

namespace {

constexpr double kSeconds = 2;

struct Rate {
  double bytes_per_s;
  double tokens_per_s;
};

Rate Measure(const spillway::Tokenizer& tokenizer, const std::vector<std::string>& lines) {
  using Clock = std::chrono::steady_clock;
  std::size_t num_bytes = 0, num_tokens = 0;
  const auto begin = Clock::now();
  std::chrono::duration<double> elapsed{0};
  while (elapsed.count() < kSeconds) {
    for (const std::string& line : lines) {
      num_tokens += tokenizer.Encode(line, spillway::SpecialText::kParse).size();
      num_bytes += line.size();
    }
    elapsed = Clock::now() - begin;
  }
  return {static_cast<double>(num_bytes) / elapsed.count(),
          static_cast<double>(num_tokens) / elapsed.count()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_bench FOLDER TEXT_FILE\n");
    return 2;
  }
  try {
    const auto tokenizer =
        spillway::OpenTokenizer(argv[1], std::numeric_limits<spillway::TokenId>::max());
    std::ifstream file(argv[2]);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    const Rate rate = Measure(*tokenizer, lines);
    std::printf("%.2f %.0f\n", rate.bytes_per_s / 1e6, rate.tokens_per_s);
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "%s\n", spillway::ErrorLine(error.code(), error.what()).c_str());
    return spillway::ExitStatus(error.code());
  }
  return 0;
}
