// Buffers and the fixture of the tests that need a GPU. They skip, visibly, where there is none.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/cuda/check.h"
#include "src/cuda/device.h"
#include "src/cuda/stream.h"
#include "src/gpu/device_arena.h"

namespace spillway {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (CountGpus() == 0) GTEST_SKIP() << "no GPU, or no driver for this toolkit";
    OpenGpu(0);
    stream_ = std::make_unique<Stream>();
  }

  Stream& stream() { return *stream_; }
  // The only place where the host waits for a kernel and sees its fault.
  void Finish() { CudaCheck(cudaStreamSynchronize(stream_->get()), "the test's kernels"); }

 private:
  std::unique_ptr<Stream> stream_;
};

// GPU memory with a host copy. Fresh memory is all ones: NaN in every float type.
template <typename T>
class GpuArray {
 public:
  GpuArray(std::vector<T> values, Stream& stream)
      : host_(std::move(values)), arena_(std::max<int64_t>(1, bytes())), stream_(stream) {
    Upload();
  }
  T* data() { return arena_.As<T>({0, bytes()}); }
  std::span<const T> span() { return {data(), host_.size()}; }
  std::vector<T>& host() { return host_; }

  void Upload() {
    CudaCheck(cudaMemcpyAsync(data(), host_.data(), static_cast<std::size_t>(bytes()),
                              cudaMemcpyHostToDevice, stream_.get()),
              "a test's upload");
    CudaCheck(cudaStreamSynchronize(stream_.get()), "a test's upload");
  }
  const std::vector<T>& Download() {
    CudaCheck(cudaMemcpyAsync(host_.data(), data(), static_cast<std::size_t>(bytes()),
                              cudaMemcpyDeviceToHost, stream_.get()),
              "a test's download");
    CudaCheck(cudaStreamSynchronize(stream_.get()), "a test's download");
    return host_;
  }

 private:
  int64_t bytes() const { return static_cast<int64_t>(host_.size() * sizeof(T)); }

  std::vector<T> host_;
  DeviceArena arena_;
  Stream& stream_;
};

}  // namespace spillway
