#include "src/checkpoint/shard_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

// "./model.safetensors" -> "model.safetensors".
std::string NameInFolder(std::string name, const std::string& index_name) {
  while (name.starts_with("./")) name.erase(0, 2);
  ModelFolder::CheckName(name, index_name);
  return name;
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
    files.emplace(tensor, NameInFolder(file.get<std::string>(), index_name));
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

// Decides which tensors of the shards count.
class TensorChoice {
 public:
  TensorChoice(const std::vector<WeightsFile>& shards, const WeightFiles& files,
               const std::string& index_name)
      : files_(files), index_name_(index_name) {
    for (const WeightsFile& shard : shards) {
      for (const StoredTensor& stored : shard.tensors)
        holders_[stored.tensor.name].push_back(&shard.file.name());
    }
  }

  // False where the tensor does not count in this shard; may give it a refusal.
  bool Keeps(const WeightsFile& shard, StoredTensor& stored) const {
    const std::string& name = stored.tensor.name;
    const std::vector<const std::string*>& holders = holders_.at(name);
    const auto listed = files_.find(name);
    if (listed == files_.end()) {
      if (holders.size() > 1) stored.tensor.refusal = SeveralHold(name, holders);
      return holders.front() == &shard.file.name();
    }
    if (listed->second == shard.file.name()) return true;
    const bool elsewhere = std::ranges::any_of(
        holders, [&](const std::string* holder) { return *holder == listed->second; });
    if (elsewhere) return false;
    throw Error(
        ErrorCode::kModelInconsistent,
        fmt::format("{}: holds tensor \"{}\", which {} puts into {}; download the model again",
                    Printable(shard.file.name(), 40), Printable(name, 50), index_name_,
                    Printable(listed->second, 40)));
  }

 private:
  std::string SeveralHold(const std::string& name,
                          const std::vector<const std::string*>& holders) const {
    return fmt::format(
        "{}: does not list tensor \"{}\", which {} and {} hold; download the model "
        "again",
        index_name_, Printable(name, 50), Printable(*holders[0], 40), Printable(*holders[1], 40));
  }

  const WeightFiles& files_;
  const std::string& index_name_;
  std::unordered_map<std::string, std::vector<const std::string*>> holders_;  // by tensor
};

}  // namespace

std::vector<WeightsFile> ReadShards(const ModelFolder& folder, const std::string& index_name,
                                    const std::function<WeightsFile(ModelFile)>& read_shard) {
  const WeightFiles files = ReadIndex(folder, index_name);
  const std::map<std::string, std::size_t> counts = CountByFile(files, index_name);
  CheckAllPresent(folder, counts);
  std::vector<WeightsFile> shards;
  for (const auto& [file, count] : counts) shards.push_back(read_shard(folder.OpenNamed(file)));
  const TensorChoice choice(shards, files, index_name);
  for (WeightsFile& shard : shards) {
    std::vector<StoredTensor> kept;
    for (StoredTensor& stored : shard.tensors) {
      if (choice.Keeps(shard, stored)) kept.push_back(std::move(stored));
    }
    shard.tensors = std::move(kept);
  }
  return shards;
}

}  // namespace spillway
