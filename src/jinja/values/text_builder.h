// TextBuilder: a text that grows by parts, within the budget of the rendering.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "src/jinja/values/budget.h"

namespace spillway::jinja {

class TextBuilder {
 public:
  // Throws: Fault where there is no room.
  void Add(std::string_view part) {
    if (part.size() > text_.capacity() - text_.size()) Grow(text_.size() + part.size());
    text_ += part;
  }
  void Add(char c) { Add(std::string_view(&c, 1)); }
  void Add(std::size_t count, std::string_view part) {
    CheckRoom(static_cast<double>(count) * static_cast<double>(part.size()));
    Grow(text_.size() + count * part.size());
    for (std::size_t i = 0; i < count && !part.empty(); ++i) text_ += part;
  }

  std::size_t size() const { return text_.size(); }

  std::string Take() {
    held_ = Held(0);
    return std::move(text_);
  }

 private:
  // Holds the new place beside the old one, as long as both are there.
  void Grow(std::size_t size) {
    if (size <= text_.capacity()) return;
    Held grown(std::max(size, 2 * text_.capacity()));
    text_.reserve(std::max(size, 2 * text_.capacity()));
    held_ = std::move(grown);
  }

  std::string text_;
  Held held_;
};

}  // namespace spillway::jinja
