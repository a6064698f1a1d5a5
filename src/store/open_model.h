// Opening a model by its name: a folder, a store, a built-in shape with dummy weights, or nothing
// for the bundled model. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/file_hashes.h"
#include "src/checkpoint/weight_map.h"
#include "src/store/weight_reader.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// Purpose of an opened model. A built-in shape without weights is enough for kPlan; kConvert may
// make a store of fewer bits from one of 16.
enum class ModelUse { kRun, kPlan, kConvert };

// Choice of a model, and what is taken of it.
struct ModelChoice {
  // Folder, store, built-in shape, or a name of the Hub whose model is in its cache; empty: the
  // bundled model.
  std::string model;
  // Folder, or as above; empty: the model's own; "none": prompts are token ids.
  std::string tokenizer;
  bool dummy_weights = false;
  std::optional<int>
      weight_bits;  // 16, 8, 4: published codes are decoded; not given: as the model is
  NonFiniteWeights nonfinite = NonFiniteWeights::kRefuse;
  uint64_t seed = 0;  // of dummy weights
  ModelUse use = ModelUse::kRun;
};

// A model that is opened, not loaded: headers are read and agree with each other.
struct OpenedModel : Model {
  ModelChoice choice;
  std::filesystem::path folder;  // empty: built-in shape
  std::filesystem::path store;   // `folder` where it is a store whose weights are used, or empty
  std::filesystem::path tokenizer_folder;  // empty: none
  std::unique_ptr<Checkpoint> checkpoint;
  WeightMap weights;
  std::unique_ptr<Tokenizer> tokenizer;
  std::string type_of_whole;  // ModelConfig's; of a store or a built-in shape empty
  // Of its files; read for it once, whatever asks.
  std::unique_ptr<FileHashes> hashes = std::make_unique<FileHashes>(FileHashMemory());
  nlohmann::json generation;  // generation_config.json; null: there is none
};

// Throws: Error kModelMissing, kModelUnsupported, kNonFinite: the choice does not suit what is
// there; and what the readers throw.
OpenedModel OpenModel(const ModelChoice& choice);

// Whether the weights are dummies.
bool HasDummyWeights(const OpenedModel& model);

// Key of a store of these weights, from content_key.h. Reads the weight files, once for all runs.
// Throws: Error kModelMissing, kSystemLimit, kIo, kCorrupt, kInterrupted.
std::string ContentKey(const OpenedModel& model, const HashProgress& progress);

// examples/tales-opt-8m beside the source, or where `cmake --install` put it, found from the
// running binary.
std::filesystem::path BundledModel();

}  // namespace spillway
