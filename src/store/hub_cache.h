// HubCache: models of the Hugging Face Hub that are in its cache on this machine. Nothing is ever
// fetched. Plain functions; any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

struct CachedModel {
  std::filesystem::path folder;  // the snapshot
  std::string name;              // without its owner
};

// The folder that `given` means: itself, the snapshot in a cached model's folder, or that of a
// model on the Hub by its name, "NAME@main" or its page's address; an empty name where the folder's
// own counts. Throws: Error
// kModelMissing: a name of the Hub that the cache does not have, and what SnapshotIn throws.
CachedModel PlaceOfModel(const std::string& given);

// True where `name` is written as the Hub writes its models': "owner/name".
bool IsHubName(std::string_view name);

// The model "owner/name" or "name", where the cache ($HF_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub) has it.
std::optional<CachedModel> FindCachedModel(std::string_view name);

// The model of the cache that a Hub name means, with a revision behind "@" too, or its page's
// address; nullopt: the cache has none. Throws: as SnapshotIn.
std::optional<CachedModel> FindReferenced(std::string_view given);

// The snapshot that refs/main of a cached model's folder (models--owner--name) names; without
// refs/main the only one. Nullopt: `folder` is no such folder. Throws: Error kModelMissing: it is
// one, and has no such snapshot.
std::optional<CachedModel> SnapshotIn(const std::filesystem::path& folder);

}  // namespace spillway
