#include "src/verbs/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "spillway/model.h"
#include "src/base/size_text.h"
#include "src/gguf/gguf_file.h"
#include "src/store/hub_cache.h"
#include "src/store/store.h"
#include "src/store/store_checkpoint.h"
#include "src/verbs/describe.h"
#include "src/verbs/inspect_file.h"

namespace spillway {

namespace {

std::string DescribeStore(const std::filesystem::path& folder) {
  std::unique_ptr<const Store> store(new Store(OpenStore(folder)));
  std::size_t num_tiles = 0;
  for (const StoredTensorTable& tensor : store->tensors()) num_tiles += tensor.tiles.size();
  std::string text =
      fmt::format("store       version {}, {} tiles in {} bytes, made from {}\n", kStoreVersion,
                  num_tiles, store->file().size(), store->content_key());
  const ModelShape shape = store->shape();
  return text + DescribeModel(*MakeStoreCheckpoint(std::move(store)), shape);
}

std::string ShapeLine(const std::string& name) {
  const Model model = MakeModel(*BuiltInShape(name));
  const ModelShape& shape = model.shape;
  constexpr int64_t kElementBytes = 2;
  const int64_t kv_bytes =
      shape.num_layers * 2 * shape.num_kv_heads * shape.head_dim * kElementBytes;
  std::string line = fmt::format("{:<18} {:<12} {:>17} {:>10} {:>8.1f} KiB", name, shape.family,
                                 NumParameters(model), SizeText(WeightBytes(model)),
                                 static_cast<double>(kv_bytes) / 1024.0);
  if (shape.window > 0) {
    line += fmt::format("  {} tokens in {} of {} layers", shape.window,
                        std::ranges::count(shape.windowed, true), shape.num_layers);
  }
  return line + '\n';
}

}  // namespace

std::string DescribePath(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  if (!is_folder && FindGguf(path)) return DescribeGguf(path);
  if (std::filesystem::is_regular_file(path, ignored)) {
    std::optional<std::string> weights = DescribeWeightsFile(path);
    return weights ? *std::move(weights) : DescribeFile(path);
  }
  const bool is_there =
      std::filesystem::exists(path, ignored) || std::filesystem::is_symlink(path, ignored);
  if (!is_there && !FindReferenced(path.string())) {
    throw Error(ErrorCode::kModelMissing,
                fmt::format("{}: no such file or folder; give what is to be printed, or --shapes "
                            "for the built-in shapes",
                            Printable(path.string())));
  }
  const std::filesystem::path folder = PlaceOfModel(path.string()).folder;
  if (IsStoreFolder(folder)) return DescribeStore(folder);
  const std::optional<std::filesystem::path> gguf = FindGguf(folder);
  return gguf ? DescribeGguf(*gguf) : DescribeCheckpoint(folder);
}

std::string DescribeShapes() {
  std::string text = fmt::format("{:<18} {:<12} {:>17} {:>10} {:>12}  windows\n", "shape", "family",
                                 "parameters", "weights", "KV a token");
  for (const std::string& name : BuiltInShapeNames()) text += ShapeLine(name);
  return text;
}

}  // namespace spillway
