// A model folder, held open. The only place where the names of model files become open files, and
// so the only place that has to care about names that try to leave the folder. Thread rule: const
// methods from any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/model_file.h"

namespace spillway {

class ModelFolder {
 public:
  // Throws: Error kModelMissing, kSystemLimit, kIo.
  explicit ModelFolder(const std::filesystem::path& path);

  // The last component of the path: the model's name.
  const std::string& name() const { return name_; }
  const std::filesystem::path& path() const { return path_; }

  // Whether there is an entry of that name, of any kind.
  bool Has(const std::string& name) const;

  // Every entry's name, sorted.
  std::vector<std::string> List() const;

  // Names of the regular files that are not hidden. Links are followed, as when the files are read:
  // a Hugging Face cache consists of them.
  std::vector<std::string> Files() const;

  // Opens an entry whose name we chose. It may be a symlink to anywhere, as in a Hugging Face
  // cache. Throws: Error kModelMissing, kSystemLimit, kIo.
  ModelFile Open(const std::string& name) const;

  // Opens an entry that a file of the model names: a single path component. It may be a link to
  // anywhere, too, if whoever made it could as well have put the file there: the user, the owner of
  // the folder, or root. Throws: Error kUnsafe, kModelMissing, kSystemLimit, kIo.
  ModelFile OpenNamed(const std::string& name) const;

  // Refuses a name that is not a single, plain path component. `source` is the file that holds the
  // name. Throws: Error kUnsafe.
  static void CheckName(std::string_view name, std::string_view source);

 private:
  std::filesystem::path path_;
  std::string name_;
  Descriptor folder_;
};

}  // namespace spillway
