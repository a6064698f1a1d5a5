// LayerRunner: interprets a layer's program (include/spillway/layer.h) for rows of tokens: finds
// tensors where the plan placed them, gives neighbouring products of the same x to one call, and
// asks a device's OpSet for each operation. The same for every executor.
// Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "kernels/rows/choose_experts.h"
#include "kernels/rows/expert_rows.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/rotate.h"
#include "kernels/rows/soft_cap.h"
#include "spillway/layer.h"
#include "spillway/plan.h"
#include "src/base/stop_signal.h"
#include "src/compute/expert_lists.h"
#include "src/compute/rope_tables.h"
#include "src/memory/arena.h"

namespace spillway {

// Activations [rows, cols] with the floats from one row to the next.
struct Rows {
  float* data = nullptr;
  int64_t stride = 0;
};

// y = scale times, or +=, rows of `table`, which may lie in pieces, one for each id.
struct TableGather {
  TensorRef ref;
  const PlannedTensor& table;
  std::span<const int32_t> ids;
  int64_t first_row = 0;
  Rows y;
  Update update = Update::kSet;
  float scale = 1.0F;
};

// Operations for experts. Choices are read by the host, which sorts the tokens by them.
class ExpertOps {
 public:
  virtual ~ExpertOps() = default;

  // True: the choices are made, and the host may read them where the device does.
  virtual bool Choose(const kernels::ChooseExpertsArgs& args) = 0;
  // Lists in host memory as TakeRows and AddRows read them. Lifetime: until the next call.
  virtual ExpertTokens Put(const ExpertTokens& tokens) = 0;
  virtual void TakeRows(const kernels::TakeExpertRowsArgs& args) = 0;
  virtual void AddRows(const kernels::AddExpertRowsArgs& args) = 0;
};

// Operations of a device. Pointers and spans are to its memory; a call may return before it is
// done, as long as operations run in the order of the calls.
class OpSet {
 public:
  virtual ~OpSet() = default;

  // Place of a buffer other than the hidden states.
  virtual Rows At(Buf buf) = 0;
  virtual void Gather(const TableGather& gather) = 0;
  virtual void Norm(const kernels::NormArgs& args) = 0;
  virtual void NormHeads(const kernels::HeadNormArgs& args) = 0;
  virtual void Rotate(const kernels::RotateArgs& args) = 0;
  virtual void SoftCap(const kernels::SoftCapArgs& args) = 0;
  virtual void Multiply(const kernels::MatmulArgs& args) = 0;
  virtual ExpertOps& experts() = 0;
};

// Input of a program: tokens whose states are `hidden`. Gather reads the ids, Rotate the positions
// and the frequencies, of which `turns.tables` has one entry a token or none.
struct ProgramInput {
  Rows hidden;
  int64_t rows = 0;
  std::span<const int32_t> tokens = {};
  std::span<const int32_t> positions = {};
  Turns turns = {};

  ProgramInput Part(int64_t begin, int64_t count) const {
    const auto first = static_cast<std::size_t>(begin);
    const auto size = static_cast<std::size_t>(count);
    const auto part = [&](std::span<const int32_t> all) {
      return all.empty() ? all : all.subspan(first, size);
    };
    return {{hidden.data + begin * hidden.stride, hidden.stride},
            count,
            part(tokens),
            part(positions),
            {turns.frequencies, part(turns.tables)}};
  }
};

// A vector of the plan in the device's memory; null: there is none.
inline const float* VectorOf(const Plan& plan, const Arena& device, TensorRef ref) {
  if (!ref.exists()) return nullptr;
  const PlannedTensor& tensor = plan.Tensor(ref);
  return device.As<float>({tensor.tiles[0].place, tensor.spec.bytes()});
}

class LayerRunner {
 public:
  // `device` is the arena of plan.device(). Lifetime: plan and arena outlive the runner.
  // Throws: Error kModelUnsupported: a program names what no kernel computes.
  LayerRunner(const Plan& plan, const Arena& device);

  // Runs all of the layer's operations but experts, which need other tokens' states too;
  // `attend(const Attend&)` does the attention.
  template <typename F>
  void Run(const PlannedLayer& layer, const ProgramInput& input, OpSet& device, F attend) {
    std::span<const Op> ops(layer.ops);
    while (!ops.empty()) {
      const auto at = std::ranges::find_if(ops, IsAttend);
      const auto count = static_cast<std::size_t>(at - ops.begin());
      RunOps(ops.first(count), input, device);
      if (at == ops.end()) return;
      attend(std::get<Attend>(*at));
      ops = ops.subspan(count + 1);
    }
  }

  // Computes experts for tokens, as many as MostGathered at a time.
  void RunExperts(const Experts& experts, std::span<const GatheredToken> tokens, OpSet& device);

  // Experts that the programs run since BeginChoices chose, [number]: 1 or 0; empty: none chose
  // any, or the host does not know yet.
  void BeginChoices() { chosen_.clear(); }
  std::span<const uint8_t> chosen() const { return chosen_; }

  // Takes a prompt that is no row through a layer, in chunks as any prompt; `attend(op, begin,
  // rows)` does the attention. `all`: the whole prompt, as the device addresses it. Nothing is done
  // for the head.
  template <typename F>
  void RunPrompt(const PlannedLayer& layer, const ProgramInput& all, OpSet& device, F attend) {
    if (layer.part == ComputePart::kHead) return;
    for (int64_t begin = 0; begin < all.rows; begin += plan_.workspace.chunk_tokens) {
      const int64_t rows = std::min(plan_.workspace.chunk_tokens, all.rows - begin);
      ThrowIfStopRequested();
      Run(layer, all.Part(begin, rows), device, [&](const Attend& op) { attend(op, begin, rows); });
    }
  }

 private:
  void RunOps(std::span<const Op> ops, const ProgramInput& input, OpSet& device);
  void RunGather(const Gather& gather, const ProgramInput& input, OpSet& device);
  void RunNorm(const Norm& norm, const ProgramInput& input, OpSet& device);
  void RunHeadNorm(const HeadNorm& norm, const ProgramInput& input, OpSet& device);
  int64_t RotatedHeads(const Rotate& rotate) const;
  void RunRotate(const Rotate& rotate, const ProgramInput& input, OpSet& device);
  void RunSoftCap(const SoftCap& cap, const ProgramInput& input, OpSet& device);
  void RunProducts(std::span<const Op> linears, const ProgramInput& input, OpSet& device);
  void RunProduct(const Linear& linear, const ProgramInput& input, OpSet& device);
  void AddPieces(const Linear& linear, const ProgramInput& input, OpSet& device);
  void MultiplyPieces(const Linear& first, const ProgramInput& input, OpSet& device);
  void RunChoose(const Choose& choose, const ProgramInput& input, OpSet& device);
  void RunExpert(const Experts& of, const Expert& expert, const ExpertTokens& tokens,
                 OpSet& device);

  // A buffer of the device, or a part of the tokens' states.
  Rows RowsOf(Buf buf, const ProgramInput& input, OpSet& device) const;
  const PlannedTensor& Tensor(TensorRef ref) const { return plan_.Tensor(ref); }
  const float* Vector(TensorRef ref) const { return VectorOf(plan_, device_, ref); }

  const Plan& plan_;
  const Arena& device_;
  std::vector<kernels::MatmulPiece> pieces_;  // of one call
  ExpertLists lists_;
  std::vector<uint8_t> chosen_;
};

}  // namespace spillway
