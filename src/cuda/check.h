// CudaCheck: every call into the CUDA libraries goes through it. A failure is an Error: out of
// memory is kGpuMemory, all else is a fault of the GPU, kGpu. Most of those are sticky: the context
// is lost and every later call fails too, so that the run can only end. Thread rule: any thread.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <source_location>

namespace spillway {

// `what` is what was tried, as "copy of weights". Throws: Error kGpu, kGpuMemory.
void CudaCheck(cudaError_t result, const char* what,
               std::source_location where = std::source_location::current());
void CublasCheck(cublasStatus_t result, const char* what,
                 std::source_location where = std::source_location::current());

}  // namespace spillway
