// What --model means: a folder, a store, a built-in shape with dummy weights, or the bundled model.
// Thread rule: the main thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/weight_map.h"
#include "src/config/config.h"
#include "src/store/weight_reader.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// A model that is opened, not loaded: headers are read and agree with each other.
struct OpenedModel : Model {
  std::filesystem::path folder;  // empty: built-in shape
  std::filesystem::path store;   // `folder` where it is a store whose weights are used, or empty
  std::filesystem::path tokenizer_folder;  // empty: none
  std::unique_ptr<Checkpoint> checkpoint;
  WeightMap weights;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Throws: Error kFlag for contradicting flags, and what the readers throw.
OpenedModel OpenModel(const Config& config);

// What a store of these weights is made from; see content_key.h.
// Throws: Error kModelMissing, kSystemLimit, kIo.
std::string ContentKey(const Config& config, const OpenedModel& model);

// NaN and infinity in weights, as the flags have it.
NonFiniteWeights NonFiniteOf(const Config& config);

// examples/tales-opt-8m beside the source, or where `cmake --install` put it, found from the
// running binary.
std::filesystem::path BundledModel();

}  // namespace spillway
