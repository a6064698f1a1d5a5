// GgufValue: a value of a GGUF file's metadata, and the table of all of them by name. Plain values;
// any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spillway {

// Integers of all widths are int64_t, both kinds of floating-point numbers double, and so in lists;
// a list of booleans has 0 and 1.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

// Metadata of a file. Getters refuse a value of another type, or out of range, by its name. Throws
// (all below): Error kModelMalformed.
class GgufMetadata {
 public:
  // `source` is what messages call the file.
  explicit GgufMetadata(std::string source) : source_(std::move(source)) {}

  const std::string& source() const { return source_; }

  // False: there is a value of that name already.
  bool Add(std::string name, GgufValue value);

  bool Has(std::string_view name) const { return values_.find(name) != values_.end(); }

  // Integers from 0 to 2^31 - 1.
  int64_t Count(std::string_view name) const;
  std::optional<int64_t> FindCount(std::string_view name) const;
  // One, or a list of the same for each of so many layers.
  std::optional<int64_t> FindLayersCount(std::string_view name, int64_t num_layers) const;
  // Finite.
  double Number(std::string_view name) const;
  std::optional<double> FindNumber(std::string_view name) const;
  std::string Text(std::string_view name) const;
  std::optional<std::string> FindText(std::string_view name) const;
  std::optional<bool> FindFlag(std::string_view name) const;
  const std::vector<std::string>& Texts(std::string_view name) const;
  bool HasList(std::string_view name) const;                            // of integers
  const std::vector<int64_t>* FindCounts(std::string_view name) const;  // null: absent
  const std::vector<double>* FindNumbers(std::string_view name) const;

  // Throws: Error kModelMalformed: "<source>: <what>; download it again".
  [[noreturn]] void Refuse(const std::string& what) const;

 private:
  template <class T>
  const T* Find(std::string_view name, std::string_view expected) const;
  template <class T>
  const T& Get(std::string_view name, std::string_view expected) const;

  std::string source_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace spillway
