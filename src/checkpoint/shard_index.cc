#include "src/checkpoint/shard_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/bounded_json.h"

namespace spillway {
namespace {

constexpr int64_t kMaxIndexBytes = 64 << 20;
constexpr std::size_t kMaxShards = 10'000;

// Tensor name -> file name.
using WeightFiles = std::unordered_map<std::string, std::string>;

[[noreturn]] void ThrowMalformed(const std::string& index_name, std::string_view what) {
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: {}; download it again", index_name, what));
}

WeightFiles ReadIndex(const ModelFolder& folder, const std::string& index_name) {
  const nlohmann::json root = ReadBoundedJson(folder.Open(index_name), kMaxIndexBytes);
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (map == root.end() || !map->is_object())
    ThrowMalformed(index_name, "has no object \"weight_map\"");
  WeightFiles files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      ThrowMalformed(index_name,
                     fmt::format("the file of tensor \"{}\" is not a string", Printable(tensor)));
    }
    ModelFolder::CheckName(file.get_ref<const std::string&>(), index_name);
    files.emplace(tensor, file.get<std::string>());
  }
  if (files.empty()) ThrowMalformed(index_name, "\"weight_map\" is empty");
  return files;
}

// File name -> how many tensors the index puts there; sorted, so that messages do not depend on
// hashing.
std::map<std::string, std::size_t> CountByFile(const WeightFiles& files,
                                               const std::string& index_name) {
  std::map<std::string, std::size_t> counts;
  for (const auto& [tensor, file] : files) ++counts[file];
  if (counts.size() > kMaxShards)
    ThrowMalformed(index_name, fmt::format("names more than {} files", kMaxShards));
  return counts;
}

void CheckAllPresent(const ModelFolder& folder, const std::map<std::string, std::size_t>& counts) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> missing;
  std::size_t num_missing = 0;
  for (const auto& [file, count] : counts) {
    if (folder.Has(file)) continue;
    if (++num_missing <= kShown) missing.push_back(Printable(file, 36));
  }
  if (num_missing == 0) return;
  throw Error(
      ErrorCode::kModelMissing,
      fmt::format("{} of {} shards are missing, download them: {}{}", num_missing, counts.size(),
                  fmt::join(missing, ", "), num_missing > kShown ? ", ..." : ""));
}

void CheckTensors(const Shard& shard, const WeightFiles& files, const std::string& index_name) {
  for (const StoredTensor& stored : shard.tensors) {
    const auto at = files.find(stored.tensor.name);
    if (at != files.end() && at->second == shard.file.name()) continue;
    throw Error(
        ErrorCode::kModelInconsistent,
        fmt::format("{}: holds tensor \"{}\", which {} puts {}; download the model again",
                    Printable(shard.file.name(), 40), Printable(stored.tensor.name, 50), index_name,
                    at == files.end() ? "nowhere" : "into " + Printable(at->second, 40)));
  }
}

// Names are unique within a shard, so equal counts mean that none is missing: this finds the name
// for the message.
[[noreturn]] void ThrowAbsentTensor(const Shard& shard, const WeightFiles& files,
                                    const std::string& index_name) {
  std::map<std::string_view, bool> present;
  for (const StoredTensor& stored : shard.tensors) present[stored.tensor.name] = true;
  std::string absent;
  for (const auto& [tensor, file] : files) {
    if (file == shard.file.name() && !present.contains(tensor) &&
        (absent.empty() || tensor < absent))
      absent = tensor;
  }
  throw Error(
      ErrorCode::kModelInconsistent,
      fmt::format("{}: does not hold tensor \"{}\", which {} puts there; download the model again",
                  Printable(shard.file.name()), Printable(absent), index_name));
}

}  // namespace

std::vector<Shard> ReadShards(const ModelFolder& folder, const std::string& index_name,
                              const std::function<Shard(ModelFile)>& read_shard) {
  const WeightFiles files = ReadIndex(folder, index_name);
  const std::map<std::string, std::size_t> counts = CountByFile(files, index_name);
  CheckAllPresent(folder, counts);
  std::vector<Shard> shards;
  for (const auto& [file, count] : counts) {
    shards.push_back(read_shard(folder.OpenNamed(file)));
    CheckTensors(shards.back(), files, index_name);
    if (shards.back().tensors.size() != count) ThrowAbsentTensor(shards.back(), files, index_name);
  }
  return shards;
}

}  // namespace spillway
