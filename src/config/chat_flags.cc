#include "src/config/chat_flags.h"

#include <fmt/format.h>

#include <string>

#include "spillway/error.h"
#include "src/base/date_text.h"
#include "src/config/flag_kinds.h"

namespace spillway {
namespace {

void SetDate(Config& config, const std::string& text) {
  config.chat_date = ReadDateText(text);
  if (config.chat_date) return;
  throw Error(
      ErrorCode::kFlag,
      fmt::format("--chat-date {}: expected YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS", Printable(text)));
}

}  // namespace

std::vector<Flag> ChatFlags() {
  return {
      Value(
          "chat-template", "FILE|NAME",
          "chat template of \"messages\": a file, or the name of one of the model's (the model's)",
          &Config::chat_template),
      Value("system", "TEXT", "system message for conversations that have none", &Config::system),
      Value("chat-date", "DATE", "date that chat templates are told, YYYY-MM-DD[THH:MM:SS] (today)",
            SetDate),
  };
}

std::vector<Flag> ChatAnswerFlags() {
  return {
      Switch("split-reasoning", "put what stands in <think>...</think> in reasoning_content",
             &Config::split_reasoning),
  };
}

}  // namespace spillway
