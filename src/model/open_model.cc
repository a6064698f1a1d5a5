#include "src/model/open_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include "spillway/error.h"
#include "src/checkpoint/dummy.h"
#include "src/model/model_config.h"
#include "src/tokenizer/no_tokenizer.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// Where a numpy folder's tokenizer lies: FlexGen keeps the weights of `opt-30b` in `opt-30b-np`
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

bool HasTokenizer(const fs::path& folder) {
  std::error_code ignored;
  return !folder.empty() && (fs::exists(folder / "tokenizer.json", ignored) ||
                             fs::exists(folder / "vocab.json", ignored) ||
                             fs::exists(folder / "tokenizer.model", ignored));
}

// Dummy weights come without a tokenizer; the bundled one lets text prompts run all the same. Its
// ids must have rows.
constexpr int64_t kBundledVocabulary = 4096;

std::unique_ptr<Tokenizer> OpenTokenizerFor(const Config& config, const fs::path& folder,
                                            const ModelShape& shape) {
  if (config.tokenizer == "none") return std::make_unique<NoTokenizer>(shape.vocab_size);
  if (!config.tokenizer.empty()) return OpenTokenizer(config.tokenizer, shape.vocab_size);
  const fs::path own = folder.empty() ? folder : TokenizerFolder(folder);
  const bool is_shape_only = config.dummy_weights || folder.empty();
  if (!is_shape_only || HasTokenizer(own)) return OpenTokenizer(own, shape.vocab_size);
  if (shape.vocab_size < kBundledVocabulary) return std::make_unique<NoTokenizer>(shape.vocab_size);
  return OpenTokenizer(BundledModel(), shape.vocab_size);
}

fs::path ModelFolder(const Config& config) {
  return config.model.empty() ? BundledModel() : fs::path(config.model);
}

bool IsBuiltIn(const Config& config) {
  std::error_code ignored;
  if (!BuiltInShape(config.model) || fs::is_directory(config.model, ignored)) return false;
  // A plan needs the shape alone.
  if (config.dummy_weights || config.verb == Verb::kPlan) return true;
  throw Error(
      ErrorCode::kModelMissing,
      fmt::format("{} is a built-in shape without weights; give a folder, or add --dummy-weights",
                  config.model));
}

}  // namespace

OpenedModel OpenModel(const Config& config) {
  OpenedModel model;
  if (IsBuiltIn(config)) {
    model.shape = *BuiltInShape(config.model);
  } else {
    model.folder = ModelFolder(config);
    model.shape = ReadModelShape(model.folder);
  }
  const bool dummy = config.dummy_weights || model.folder.empty();
  model.checkpoint =
      dummy ? MakeDummyCheckpoint(model.shape, config.seed) : OpenCheckpoint(model.folder);
  model.weights = ResolveWeights(Layers(model.shape), *model.checkpoint);
  model.tokenizer = OpenTokenizerFor(config, model.folder, model.shape);
  return model;
}

fs::path BundledModel() {
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = binary.parent_path().parent_path() / SPILLWAY_INSTALLED_MODEL;
  if (fs::is_directory(installed, ignored)) return installed;
  if (fs::is_directory(SPILLWAY_SOURCE_MODEL, ignored)) return SPILLWAY_SOURCE_MODEL;
  throw Error(ErrorCode::kModelMissing, fmt::format("the bundled model is not at {}; give --model",
                                                    Printable(installed.string())));
}

}  // namespace spillway
