// HeadReport: what a calibration of KV heads found, as text, JSON and warnings. Thread rule: const
// methods from any thread. Lifetime: flags, shape and findings outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "spillway/plan.h"
#include "src/config/config.h"
#include "src/verbs/head_calibration.h"

namespace spillway {

class HeadReport {
 public:
  // `prompts`: tokens of the prompts of each set of windows, of `row_tokens` tokens each.
  HeadReport(const Config& flags, const ModelShape& shape, const HeadFindings& found,
             int64_t row_tokens, std::map<WindowSet, int64_t> prompts);

  // The KV policy of a file: the full cache where each head keeps everything.
  KvPolicy FoundKv(const JointLoss& joint) const;

  // The chosen setting in a line; what is behind the table of heads on the terminal.
  std::string Summary() const;
  std::string Text() const;

  // Bounds that nothing holds, or that all tokens are within.
  std::vector<std::string> Warnings() const;

  std::string JsonText(const Plan& plan) const;

 private:
  // "perplexity 22.31 after prompts of 560 tokens, ...".
  std::string SetLines() const;
  // With --pareto: a line for each setting, those of a number of bits together.
  std::string ParetoLines() const;
  double KeptOf(const JointLoss& joint) const;
  bool IsWithinBound() const;
  nlohmann::ordered_json LossJson(const JointLoss& joint) const;

  const Config& flags_;
  const ModelShape& shape_;
  const HeadFindings& found_;
  int64_t row_tokens_;
  std::map<WindowSet, int64_t> prompts_;
};

}  // namespace spillway
