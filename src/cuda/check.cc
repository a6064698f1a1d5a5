#include "src/cuda/check.h"

#include <fmt/format.h>

#include <string_view>

#include "spillway/error.h"

namespace spillway {
namespace {

std::string Where(const std::source_location& where) {
  const std::string_view path = where.file_name();
  return fmt::format("{}:{}", path.substr(path.rfind('/') + 1), where.line());
}

}  // namespace

void CudaCheck(cudaError_t result, const char* what, std::source_location where) {
  if (result == cudaSuccess) return;
  const bool out_of_memory = result == cudaErrorMemoryAllocation;
  throw Error(out_of_memory ? ErrorCode::kGpuMemory : ErrorCode::kGpu,
              fmt::format("{} failed: {} ({}, {}); {}", what, cudaGetErrorString(result),
                          cudaGetErrorName(result), Where(where),
                          out_of_memory ? "give a smaller --gpu-memory"
                                        : "see the system log for the driver's message"));
}

void CublasCheck(cublasStatus_t result, const char* what, std::source_location where) {
  if (result == CUBLAS_STATUS_SUCCESS) return;
  throw Error(
      result == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::kGpuMemory : ErrorCode::kGpu,
      fmt::format("{} failed: {} ({})", what, cublasLtGetStatusString(result), Where(where)));
}

}  // namespace spillway
