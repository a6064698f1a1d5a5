#include "src/store/open_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "spillway/error.h"
#include "src/base/shipped_path.h"
#include "src/base/suggestion.h"
#include "src/checkpoint/dummy.h"
#include "src/checkpoint/generation_config.h"
#include "src/checkpoint/model_config.h"
#include "src/codes/coded_checkpoint.h"
#include "src/gguf/gguf_file.h"
#include "src/gguf/gguf_model.h"
#include "src/store/content_key.h"
#include "src/store/held_codes.h"
#include "src/store/hub_cache.h"
#include "src/store/store.h"
#include "src/store/store_checkpoint.h"
#include "src/tokenizer/no_tokenizer.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// Folder of a numpy folder's tokenizer: FlexGen keeps the weights of `opt-30b` in `opt-30b-np`
// beside it.
fs::path TokenizerFolder(const fs::path& model) {
  const std::string name = model.filename().string();
  constexpr std::string_view kNumpySuffix = "-np";
  std::error_code ignored;
  if (!name.ends_with(kNumpySuffix) || fs::exists(model / "vocab.json", ignored) ||
      fs::exists(model / "tokenizer.json", ignored)) {
    return model;
  }
  return model.parent_path() / name.substr(0, name.size() - kNumpySuffix.size());
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

bool HasTokenizer(const fs::path& folder) {
  std::error_code ignored;
  return !folder.empty() && (fs::exists(folder / "tokenizer.json", ignored) ||
                             fs::exists(folder / "vocab.json", ignored) ||
                             fs::exists(folder / "tokenizer.model", ignored));
}

// Dummy weights come without a tokenizer; the bundled one lets text prompts run all the same. Its
// ids must have rows.
constexpr int64_t kBundledVocabulary = 4096;

// Empty: prompts are token ids.
fs::path FindTokenizer(const OpenedModel& model) {
  const std::string& given = model.choice.tokenizer;
  if (given == "none") return {};
  if (!given.empty()) {
    fs::path place = PlaceOfModel(given).folder;
    if (HasTokenizer(place)) return place;
    const std::optional<fs::path> gguf = FindGguf(place);
    return gguf ? GgufFolder(*gguf) : place;
  }
  fs::path own = model.folder.empty() ? model.folder : TokenizerFolder(model.folder);
  if (!HasDummyWeights(model) || HasTokenizer(own)) return own;
  return model.shape.vocab_size < kBundledVocabulary ? fs::path() : BundledModel();
}

// Ends the key of a store whose weights were not checked for NaN and infinity.
constexpr std::string_view kNonFiniteKey = "-nonfinite";

// The model that dummy weights are quantised from.
Model Unquantised(ModelShape shape) {
  shape.weight_bits = 16;
  DropPublishedCodes(shape);
  return MakeModel(std::move(shape));
}

ModelShape OpenStored(OpenedModel& model) {
  const ModelChoice& choice = model.choice;
  std::unique_ptr<const Store> store(new Store(OpenStore(model.folder)));
  ModelShape shape = store->shape();
  model.generation = ReadGenerationDocument(model.folder);
  if (choice.dummy_weights) return shape;
  const int bits = choice.weight_bits.value_or(shape.weight_bits);
  const bool makes_another = choice.use == ModelUse::kConvert && shape.weight_bits == 16 &&
                             !HoldsPublishedCodes(shape);  // codes are not made of codes
  const bool decodes = choice.weight_bits && HoldsPublishedCodes(shape);
  if (decodes || (!makes_another && bits != shape.weight_bits)) {
    const std::string held = HoldsPublishedCodes(shape)
                                 ? "weights in published codes"
                                 : fmt::format("{}-bit weights", shape.weight_bits);
    throw Error(ErrorCode::kModelUnsupported,
                fmt::format("{}: a store of {}, and {} bits are asked for; leave "
                            "--weight-bits out, or convert the checkpoint with --weight-bits {}",
                            Printable(model.folder.string()), held, bits, bits));
  }
  const bool unchecked = store->content_key().ends_with(kNonFiniteKey);
  if (unchecked && choice.nonfinite == NonFiniteWeights::kRefuse) {
    throw Error(ErrorCode::kNonFinite,
                fmt::format("{}: was converted with --allow-nonfinite-weights; {}",
                            Printable(model.folder.string()),
                            bits == 16 ? "give it here too"
                                       : "fewer bits than 16 hold no NaN or infinity"));
  }
  model.store = model.folder;
  model.checkpoint = MakeStoreCheckpoint(std::move(store));
  return shape;
}

bool IsBuiltIn(const ModelChoice& choice) {
  std::error_code ignored;
  if (!BuiltInShape(choice.model) || fs::is_directory(choice.model, ignored)) return false;
  if (choice.dummy_weights || choice.use == ModelUse::kPlan) return true;
  if (FindCachedModel(choice.model)) return false;
  throw Error(
      ErrorCode::kModelMissing,
      fmt::format("{} is a built-in shape without weights; give a folder, or add --dummy-weights",
                  choice.model));
}

// Refuses what may have been meant for a built-in shape's name.
void RefuseUnknownName(const ModelChoice& choice) {
  if (choice.model.empty() || choice.model.find('/') != std::string::npos) return;
  if (Exists(choice.model) || FindCachedModel(choice.model)) return;
  constexpr std::size_t kMost = 3;
  std::string name = choice.model;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  throw Error(ErrorCode::kModelMissing,
              fmt::format("{}: no folder or store, and no built-in shape; the nearest are {} "
                          "(spillway inspect --shapes lists all)",
                          Printable(choice.model, 60),
                          fmt::join(NearestWords(name, BuiltInShapeNames(), kMost), ", ")));
}

std::unique_ptr<Checkpoint> OpenFolder(const fs::path& folder,
                                       const std::optional<Quantisation>& quantisation) {
  std::unique_ptr<Checkpoint> checkpoint = OpenCheckpoint(folder);
  return quantisation ? DecodeCheckpoint(std::move(checkpoint), *quantisation)
                      : std::move(checkpoint);
}

// Types of the matrices that the checkpoint has codes for, where no weight of it is read.
void TakeCodes(const Checkpoint& checkpoint, ModelShape& shape) {
  shape.experts.mxfp4 = HasMxfp4Experts(checkpoint);
  const WeightMap map = ResolveWeights(MakeModel(shape), checkpoint);
  HoldCodes(FindPublishedCodes(shape, checkpoint, map), shape);
}

ModelShape OpenGguf(const fs::path& path, OpenedModel& model) {
  GgufModel gguf = OpenGgufModel(path);
  model.folder = std::move(gguf.folder);
  ModelConfig config = ReadModelConfig(model.folder);
  model.generation = std::move(config.generation);
  if (model.choice.dummy_weights) {
    TakeCodes(*gguf.checkpoint, config.shape);
  } else {
    model.checkpoint = std::move(gguf.checkpoint);
  }
  config.shape.name = std::move(gguf.name);
  return std::move(config.shape);
}

// Opens the folder, file or store, where there is one.
ModelShape OpenShape(OpenedModel& model) {
  const ModelChoice& choice = model.choice;
  if (IsBuiltIn(choice)) return *BuiltInShape(choice.model);
  RefuseUnknownName(choice);
  const CachedModel place =
      choice.model.empty() ? CachedModel{BundledModel(), ""} : PlaceOfModel(choice.model);
  model.folder = place.folder;
  if (IsStoreFolder(model.folder)) return OpenStored(model);
  if (const auto gguf = FindGguf(model.folder)) return OpenGguf(*gguf, model);
  ModelConfig config = ReadModelConfig(model.folder);
  model.type_of_whole = std::move(config.type_of_whole);
  model.generation = std::move(config.generation);
  if (!choice.dummy_weights) model.checkpoint = OpenFolder(model.folder, config.quantisation);
  if (!place.name.empty()) config.shape.name = place.name;
  // Of dummy weights; of others their own codes decide.
  if (config.quantisation) {
    const bool is_mxfp4 = config.quantisation->method == CodeMethod::kMxfp4;
    config.shape.experts.mxfp4 = is_mxfp4 && config.shape.experts.num > 0;
    if (const auto codes = HeldCodes(*config.quantisation)) config.shape.layer_codes = {*codes};
  }
  return std::move(config.shape);
}

// Has matrices in the codes that the checkpoint publishes, where they can be held.
void HoldPublishedCodes(OpenedModel& model) {
  ModelShape shape = model.shape;
  HoldCodes(FindPublishedCodes(model.shape, *model.checkpoint, model.weights), shape);
  static_cast<Model&>(model) = MakeModel(std::move(shape));
}

}  // namespace

OpenedModel OpenModel(const ModelChoice& choice) {
  OpenedModel model;
  model.choice = choice;
  ModelShape shape = OpenShape(model);
  shape.weight_bits = choice.weight_bits.value_or(shape.weight_bits);
  const bool is_published = model.store.empty() && model.checkpoint != nullptr;
  if (is_published) {
    shape.experts.mxfp4 = HasMxfp4Experts(*model.checkpoint);
    HoldCodes({}, shape);
  }
  // Codes have other NaNs, or none.
  const bool decodes = choice.weight_bits || choice.nonfinite == NonFiniteWeights::kAllow;
  if (model.store.empty() && decodes) DropPublishedCodes(shape);
  static_cast<Model&>(model) = MakeModel(std::move(shape));
  if (model.checkpoint == nullptr) {
    model.checkpoint = MakeDummyCheckpoint(Unquantised(model.shape), choice.seed);
  }
  model.weights = ResolveWeights(model, *model.checkpoint);
  if (is_published && !decodes) HoldPublishedCodes(model);
  model.tokenizer_folder = FindTokenizer(model);
  if (model.tokenizer_folder.empty()) {
    model.tokenizer = std::make_unique<NoTokenizer>(model.shape.vocab_size);
  } else {
    model.tokenizer = OpenTokenizer(model.tokenizer_folder, model.shape.vocab_size);
  }
  return model;
}

bool HasDummyWeights(const OpenedModel& model) {
  return model.choice.dummy_weights || model.folder.empty();
}

std::string ContentKey(const OpenedModel& model, const HashProgress& progress) {
  const std::string key =
      HasDummyWeights(model)
          ? DummyContentKey(model.shape, model.choice.seed)
          : CheckpointContentKey(*model.checkpoint, model.shape, *model.hashes, progress);
  return model.choice.nonfinite == NonFiniteWeights::kAllow ? key + std::string(kNonFiniteKey)
                                                            : key;
}

fs::path BundledModel() {
  if (const auto folder = ShippedPath(SPILLWAY_INSTALLED_MODEL, SPILLWAY_SOURCE_MODEL))
    return *folder;
  throw Error(ErrorCode::kModelMissing,
              fmt::format("the bundled model is not at {}; give --model",
                          Printable(InstalledPath(SPILLWAY_INSTALLED_MODEL).string())));
}

}  // namespace spillway
