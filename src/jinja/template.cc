#include "src/jinja/template.h"

#include <fmt/format.h>

#include "src/jinja/values/budget.h"

namespace spillway::jinja {
namespace {

constexpr std::size_t kMaxSourceBytes = 256 << 10;

std::string_view Checked(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    throw Fault(fmt::format("has {} bytes; at most {} are taken", source.size(), kMaxSourceBytes));
  return source;
}

}  // namespace

Template::Template(std::string_view source) : parsed_(Parse(Checked(source))) {}

std::string Template::Render(const Dict& variables, const std::tm& now,
                             const RenderLimits& limits) const {
  Budget budget(limits.units, limits.bytes);
  const Budget::Use use(budget);
  return Interpreter(parsed_, now, limits.depth).Render(variables);
}

}  // namespace spillway::jinja
