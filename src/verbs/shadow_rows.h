// ShadowRows: a sample of a job's rows that is run before it, with the full KV cache of 16 bits,
// and then along the same answers with the run's own KV: what the difference costs (--shadow).
// Thread rule: the main thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "spillway/plan.h"
#include "spillway/quality.h"
#include "spillway/schedule.h"  // Overlap
#include "src/report/progress.h"
#include "src/requests/reader.h"
#include "src/run/supervisor.h"
#include "src/verbs/chain.h"  // Setting
#include "src/verbs/row_quality.h"

namespace spillway {

class ShadowRows {
 public:
  // Rows and tokens of their answers at most: the likeliest at each are kept in memory, 50 MB in
  // all, and more would tell little.
  static constexpr int64_t kMostRows = 1024;
  static constexpr int64_t kMostTokens = 1 << 18;

  // Takes a share of the `num_requests` requests that `reader` gives, spread evenly and at least
  // one, and plans for them with the full cache; shares and block shapes that are stated are of the
  // run's smaller KV, and are chosen anew.
  // Requires: num_requests > 0. Throws: as MakePlan, --shadow named; RequestReader::Next; Error
  // kInterrupted.
  ShadowRows(const Setting& setting, RequestReader& reader, int64_t num_requests, double share);

  int64_t num_rows() const { return std::ssize(rows_); }

  // Loads the model by the plan for the full cache, and has it answer the rows. Throws: as RunJob.
  void RunFull(const Setting& setting, ProgressLine& line);

  // Tells the answers of RunFull to the run's own plan, a token a pass as if it was chosen.
  // Throws: as Supervisor::Run.
  void RunOwn(const Plan& plan, Overlap overlap, Supervisor& supervisor, ProgressLine& line);

  // Notes the length of an answer of the run itself, if its row is of the sample.
  void NoteAnswer(const Request& request, const Completion& completion);

  // nullopt: no row could be compared.
  std::optional<QualityReceipt> Receipt() const;

 private:
  struct Row {
    Request request;
    std::vector<TokenId> answer;      // with the full cache; empty: its logits were not finite
    std::vector<StepLogprobs> steps;  // of the answer, until they are compared
    RowQuality quality;
  };
  class RowsJob;
  class FullJob;
  class OwnJob;

  Workload Work() const;

  std::vector<Row> rows_;
  std::unordered_map<int64_t, std::size_t> index_of_line_;
  Plan full_;
  double seconds_ = 0.0;
};

// Whether KV is held otherwise than in a full cache of 16 bits.
bool DiffersFromFullKv(const Policy& policy);

}  // namespace spillway
