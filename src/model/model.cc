#include "spillway/model.h"

#include "spillway/error.h"
#include "src/model/opt.h"

namespace spillway {

std::vector<LayerSpec> Layers(const ModelShape& shape) {
  // ReadModelShape refuses every other family, so only our own code can break this.
  SPILLWAY_CHECK(shape.family == "opt");
  return OptLayers(shape);
}

int64_t NumParameters(const std::vector<LayerSpec>& layers) {
  int64_t count = 0;
  for (const LayerSpec& layer : layers) {
    for (const TensorSpec& tensor : layer.tensors) count += tensor.rows * tensor.cols;
  }
  return count;
}

int64_t WeightBytes(const std::vector<LayerSpec>& layers) {
  int64_t bytes = 0;
  for (const LayerSpec& layer : layers) {
    for (const TensorSpec& tensor : layer.tensors) bytes += tensor.bytes();
  }
  return bytes;
}

}  // namespace spillway
