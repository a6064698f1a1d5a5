#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "kernels/convert/convert.h"
#include "kernels/matmul/matmul_gpu.h"
#include "kernels/matmul/matmul_packed.h"
#include "kernels/matmul/matmul_workspace.h"
#include "spillway/error.h"
#include "src/cuda/check.h"
#include "src/cuda/stream.h"

namespace spillway::kernels {
namespace {

constexpr uint32_t kPointerAlign = 16;

// The shape that an algorithm is chosen by: a decode batch that pays (default_policy.cc) and a
// matrix of usual size.
constexpr int64_t kNominalRows = 64;
constexpr int64_t kNominalOuts = 4096;

// Rows up to which the algorithm for few serves: a decode batch. Prefill has more.
constexpr int64_t kFewRows = 128;

// Rows and outputs of a trial: more than a tile has (at most 256), or as many as there is room for.
// It shows that sums have one order in these shapes, not a proof for all.
constexpr int64_t kTrialRows = 272;
constexpr int64_t kLeastTrialRows = 64;

template <typename T>
void Prefer(cublasLtMatmulPreferenceOpaque_t& preference,
            cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  CublasCheck(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
              "describing a product");
}

std::byte* AlignedForLibrary(std::byte* pointer) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
  return pointer + (RoundUp(address, kLtAlignBytes) - address);
}

// Checks what MatmulAsync requires of a piece of 16-bit weights. The library writes the product to
// y, or adds it to a residual there, before FinishAsync multiplies by `times`.
void CheckPiece(const MatmulArgs& args, const MatmulPiece& piece) {
  SPILLWAY_CHECK(piece.y_stride % 4 == 0);
  SPILLWAY_CHECK(reinterpret_cast<uintptr_t>(piece.y) % kPointerAlign == 0);
  if (piece.times != nullptr) SPILLWAY_CHECK(piece.times != piece.y && piece.residual == nullptr);
  if (piece.residual == nullptr) return;
  SPILLWAY_CHECK(piece.residual == piece.y && args.activation == Activation::kNone &&
                 piece.residual_stride == piece.y_stride);
}

void Finish(Stream& stream) {
  const Event end;
  stream.Record(end);
  end.Wait();
}

}  // namespace

// Matrix layouts as the library sees them, by columns: y [out, rows] = W [in, out]^T x [in, rows].
struct GpuMatmul::Layouts {
  cublasLtMatrixLayoutOpaque_t weight;
  cublasLtMatrixLayoutOpaque_t x;
  cublasLtMatrixLayoutOpaque_t y;

  struct Shape {
    int64_t in;
    int64_t out;
    int64_t rows;
    int64_t y_stride;
  };
  Layouts(const Shape& shape, cudaDataType_t type) {
    const auto in = static_cast<uint64_t>(shape.in);
    const auto out = static_cast<uint64_t>(shape.out);
    const auto rows = static_cast<uint64_t>(shape.rows);
    constexpr const char* kWhat = "describing a product";
    CublasCheck(cublasLtMatrixLayoutInit(&weight, type, in, out, shape.in), kWhat);
    CublasCheck(cublasLtMatrixLayoutInit(&x, type, in, rows, shape.in), kWhat);
    CublasCheck(cublasLtMatrixLayoutInit(&y, CUDA_R_32F, out, rows, shape.y_stride), kWhat);
  }
};

// Products of `rows` rows with as many outputs.
struct GpuMatmul::Trial {
  int64_t in = 0;
  int64_t rows = 0;
  std::byte* weight = nullptr;  // [rows, in], in 16 bits
  std::byte* x = nullptr;
  std::array<float*, 2> y{};  // [rows, rows]
  std::byte* workspace = nullptr;

  int64_t input_bytes() const { return rows * in * 2; }
  int64_t output_bytes() const { return rows * rows * int64_t{sizeof(float)}; }

  // Requires: `scratch` is a workspace of products, 16-byte aligned. rows is 0 where it is too
  // small.
  static Trial In(std::span<std::byte> scratch, int64_t in) {
    Trial trial;
    trial.in = in;
    const int64_t room = std::ssize(scratch) - kLtWorkspaceBytes - kLtAlignBytes;
    SPILLWAY_CHECK(room >= 0);
    trial.rows = kTrialRows;
    while (2 * (trial.input_bytes() + trial.output_bytes()) > room) trial.rows -= kPointerAlign;
    if (trial.rows < kLeastTrialRows) trial.rows = 0;
    trial.weight = scratch.data();
    trial.x = trial.weight + trial.input_bytes();
    trial.y[0] = reinterpret_cast<float*>(trial.x + trial.input_bytes());
    trial.y[1] = trial.y[0] + trial.rows * trial.rows;
    trial.workspace =
        AlignedForLibrary(reinterpret_cast<std::byte*>(trial.y[1]) + trial.output_bytes());
    return trial;
  }

  // Numbers whose sums depend on their order.
  void Fill(DType dtype, Stream& stream) const {
    std::minstd_rand random;
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    const auto narrow = dtype == DType::kF16 ? FloatToHalf : FloatToBFloat16;
    std::vector<uint16_t> numbers(static_cast<std::size_t>(2 * rows * in));
    for (uint16_t& number : numbers) number = narrow(uniform(random));
    CudaCheck(cudaMemcpyAsync(weight, numbers.data(), numbers.size() * sizeof(uint16_t),
                              cudaMemcpyHostToDevice, stream.get()),
              "the numbers of a trial");
    Finish(stream);
  }

  std::vector<std::byte> Output(std::size_t which, Stream& stream) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(output_bytes()));
    CudaCheck(
        cudaMemcpyAsync(bytes.data(), y[which], bytes.size(), cudaMemcpyDeviceToHost, stream.get()),
        "the outputs of a trial");
    Finish(stream);
    return bytes;
  }
};

GpuMatmul::GpuMatmul(std::span<const int64_t> ins, DType weight_dtype, int64_t max_rows)
    : weight_dtype_(weight_dtype), max_rows_(max_rows) {
  SPILLWAY_CHECK(weight_dtype != DType::kF32);
  if (IsQuantised(weight_dtype)) return;
  OpenLibrary();
  for (const int64_t in : ins) {
    if (std::ranges::find(algorithms_, in, &Algorithm::in) == algorithms_.end()) {
      algorithms_.push_back(Choose(in));
    }
  }
}

void GpuMatmul::OpenLibrary() {
  cublasLtHandle_t handle = nullptr;
  CublasCheck(cublasLtCreate(&handle), "setting up cuBLASLt");
  handle_.reset(handle);
  CublasCheck(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              "describing a product");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  CublasCheck(cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                             sizeof(transposed)),
              "describing a product");
}

cudaDataType_t GpuMatmul::LibraryType() const {
  return weight_dtype_ == DType::kF16 ? CUDA_R_16F : CUDA_R_16BF;
}

std::vector<cublasLtMatmulAlgo_t> GpuMatmul::Candidates(Layouts& layouts) {
  cublasLtMatmulPreferenceOpaque_t preference;
  CublasCheck(cublasLtMatmulPreferenceInit(&preference), "describing a product");
  Prefer<uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kLtWorkspaceBytes);
  Prefer<uint32_t>(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   CUBLASLT_REDUCTION_SCHEME_NONE);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    Prefer<uint32_t>(preference, attribute, kPointerAlign);
  }
  std::array<cublasLtMatmulHeuristicResult_t, 32> found;
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), &operation_, &layouts.weight, &layouts.x, &layouts.y, &layouts.y, &preference,
      static_cast<int>(found.size()), found.data(), &num_found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  CublasCheck(status, "choosing an algorithm for products");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const auto& result : std::span(found).first(static_cast<std::size_t>(num_found))) {
    algorithms.push_back(result.algo);
  }
  return algorithms;
}

// Tries the library's suggestions for the first shape first, since that one should be fast. They
// may not compute another shape, one of few rows above all; then the suggestions for the other
// shapes are tried.
GpuMatmul::Algorithm GpuMatmul::Choose(int64_t in) {
  const cudaDataType_t type = LibraryType();
  std::array<Layouts, 5> shapes = {Layouts({in, kNominalOuts, kNominalRows, kNominalOuts}, type),
                                   Layouts({in, kNominalOuts, 1, kNominalOuts}, type),
                                   Layouts({in, kNominalOuts, max_rows_, kNominalOuts}, type),
                                   Layouts({in, 16, 1, kNominalOuts}, type),
                                   Layouts({in, 16, max_rows_, kNominalOuts}, type)};
  for (Layouts& shape : shapes) {
    for (const cublasLtMatmulAlgo_t& algorithm : Candidates(shape)) {
      const bool computes_all = std::ranges::all_of(
          shapes, [&](Layouts& layouts) { return Computes(algorithm, layouts); });
      if (computes_all) return {in, algorithm, algorithm};
    }
  }
  throw Error(ErrorCode::kGpu,
              fmt::format("cuBLASLt has no algorithm for products of rows of {} elements that "
                          "serves every batch size; use --device cpu",
                          in));
}

bool GpuMatmul::Computes(const cublasLtMatmulAlgo_t& algorithm, Layouts& layouts) {
  cublasLtMatmulHeuristicResult_t result;
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_.get(), &operation_, &layouts.weight, &layouts.x, &layouts.y,
                              &layouts.y, &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<std::size_t>(kLtWorkspaceBytes);
}

std::vector<cublasLtMatmulAlgo_t> GpuMatmul::CandidatesForMany(int64_t in) {
  const cudaDataType_t type = LibraryType();
  Layouts nominal({in, kNominalOuts, max_rows_, kNominalOuts}, type);
  std::array<Layouts, 3> shapes = {Layouts({in, kNominalOuts, kFewRows + 1, kNominalOuts}, type),
                                   Layouts({in, 16, kFewRows + 1, kNominalOuts}, type),
                                   Layouts({in, 16, max_rows_, kNominalOuts}, type)};
  std::vector<cublasLtMatmulAlgo_t> candidates = Candidates(nominal);
  std::erase_if(candidates, [&](const cublasLtMatmulAlgo_t& algorithm) {
    return !std::ranges::all_of(shapes,
                                [&](Layouts& layouts) { return Computes(algorithm, layouts); });
  });
  return candidates;
}

struct GpuMatmul::Call {
  const void* weight;
  const void* x;
  float* y;
  float beta;  // times y, which is added
  std::byte* workspace;
};

void GpuMatmul::Enqueue(const cublasLtMatmulAlgo_t& algorithm, Layouts& layouts, const Call& call,
                        Stream& stream) {
  const float alpha = 1.0F;
  CublasCheck(
      cublasLtMatmul(handle_.get(), &operation_, &alpha, call.weight, &layouts.weight, call.x,
                     &layouts.x, &call.beta, call.y, &layouts.y, call.y, &layouts.y, &algorithm,
                     call.workspace, static_cast<std::size_t>(kLtWorkspaceBytes), stream.get()),
      "a product");
}

void GpuMatmul::ChooseForManyRows(std::span<std::byte> scratch, Stream& stream) {
  if (IsQuantised(weight_dtype_) || max_rows_ <= kFewRows) return;
  for (Algorithm& chosen : algorithms_) {
    const Trial trial = Trial::In(scratch, chosen.in);
    Layouts layouts({trial.in, trial.rows, trial.rows, trial.rows}, LibraryType());
    if (trial.rows == 0 || !Computes(chosen.few, layouts)) continue;
    trial.Fill(weight_dtype_, stream);
    const auto output_of = [&](const cublasLtMatmulAlgo_t& algorithm, std::size_t which) {
      Enqueue(algorithm, layouts, {trial.weight, trial.x, trial.y[which], 0.0F, trial.workspace},
              stream);
      return trial.Output(which, stream);
    };
    const std::vector<std::byte> expected = output_of(chosen.few, 0);
    const auto gives_the_bits = [&](const cublasLtMatmulAlgo_t& algorithm) {
      return Computes(algorithm, layouts) && output_of(algorithm, 1) == expected;
    };
    const std::vector<cublasLtMatmulAlgo_t> candidates = CandidatesForMany(chosen.in);
    const auto found = std::ranges::find_if(candidates, gives_the_bits);
    if (found != candidates.end()) chosen.many = *found;
  }
}

void GpuMatmul::MatmulAsync(const MatmulArgs& args, std::span<std::byte> workspace,
                            Stream& stream) {
  if (args.rows == 0) return;
  if (IsQuantised(weight_dtype_)) return MultiplyPacked(args, workspace, stream);
  RoundRowsAsync({args.x, args.x_stride, args.rows, args.in, workspace.data(), weight_dtype_},
                 stream);
  MultiplyRounded(args, workspace, stream);
  for (const MatmulPiece& piece : args.pieces) FinishAsync(FinishOf(args, piece), stream);
}

FinishArgs GpuMatmul::FinishOf(const MatmulArgs& args, const MatmulPiece& piece) {
  return {piece.y,    piece.y_stride,  args.rows,   piece.num_out,
          piece.bias, args.activation, piece.times, piece.times_stride};
}

void GpuMatmul::MultiplyRounded(const MatmulArgs& args, std::span<std::byte> workspace,
                                Stream& stream) {
  if (args.rows == 0) return;
  const int64_t rounded_bytes = RoundedXBytes(args.rows, args.in);
  SPILLWAY_CHECK(std::ssize(workspace) >= GpuMatmulWorkspaceBytes(args.rows, args.in));
  std::byte* const library_workspace = AlignedForLibrary(workspace.data() + rounded_bytes);
  const auto chosen = std::ranges::find(algorithms_, args.in, &Algorithm::in);
  SPILLWAY_CHECK(chosen != algorithms_.end());
  const cublasLtMatmulAlgo_t& algorithm = args.rows > kFewRows ? chosen->many : chosen->few;
  for (const MatmulPiece& piece : args.pieces) {
    SPILLWAY_CHECK(piece.weight_dtype == weight_dtype_);
    CheckPiece(args, piece);
    Layouts layouts({args.in, piece.num_out, args.rows, piece.y_stride}, LibraryType());
    const float beta = piece.residual != nullptr ? 1.0F : 0.0F;
    Enqueue(algorithm, layouts, {piece.weight, workspace.data(), piece.y, beta, library_workspace},
            stream);
  }
}

void GpuMatmul::MultiplyPacked(const MatmulArgs& args, std::span<std::byte> workspace,
                               Stream& stream) {
  SPILLWAY_CHECK(static_cast<int64_t>(workspace.size()) >= PackedXBytes(args.rows, args.in));
  const DType dtype = args.pieces.front().weight_dtype;
  PackXAsync({args.x, args.x_stride, args.rows, args.in, dtype, workspace.data()}, stream);
  for (const MatmulPiece& piece : args.pieces) {
    SPILLWAY_CHECK(FormOf(piece.weight_dtype) == FormOf(dtype));
    PackedMatmulAsync({workspace.data(), args.rows, args.in, args.activation, piece}, stream);
  }
}

}  // namespace spillway::kernels
