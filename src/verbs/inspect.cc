#include "src/verbs/inspect.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

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

}  // namespace

std::string DescribePath(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return DescribeFile(path);
  return IsStoreFolder(path) ? DescribeStore(path) : DescribeCheckpoint(path);
}

}  // namespace spillway
