// Options that lines of the input are read with, and what each line becomes. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "spillway/cut_side.h"
#include "spillway/kv_policy.h"
#include "spillway/model.h"  // TokenId
#include "spillway/sampling.h"
#include "spillway/shard.h"
#include "spillway/special_text.h"
#include "src/chat/chat_templates.h"
#include "src/requests/score_request.h"  // ScorePrefill
#include "src/sampling/request.h"

namespace spillway {

// Reading of conversations: what makes prompts of them.
struct ChatReading {
  ChatReading(const std::filesystem::path& folder, const std::string& given, const std::tm& date,
              std::string system_text)
      : templates(folder, given, date), system(std::move(system_text)) {}

  ChatTemplates templates;
  std::string system;  // for conversations without a system message; empty: none
};

struct ReaderOptions {
  Sampling defaults;  // what the flags say; a line's own keys win
  // Whether defaults.max_tokens gives way to the positions that a prompt leaves: where the model's
  // settings say it, and neither line nor flag.
  bool max_tokens_yield = false;
  SpecialText special_text = SpecialText::kParse;
  int64_t max_positions = 0;  // prompt + max_tokens may not exceed it; must be set
  KvPolicy kv = {};           // one that rolls lets rows be longer (WhyTooLong)
  int64_t vocab_rows = 0;     // bound of given token_ids; must be set
  std::vector<TokenId> ends;  // tokens that end a row
  TokenId start_token = -1;   // an empty prompt is this alone; -1: an empty prompt is a line error
  int64_t max_line_bytes = 16 << 20;
  std::string input_name;  // of the file, in errors and for its form; empty: as its path
  bool strict = false;     // keys that nothing knows are faults of their lines
  bool allow_duplicate_ids = false;
  std::optional<CutSide> cut;         // of prompts that are too long; nullopt: they are faults
  Shard shard;                        // of the lines, which are read; the others are passed over
  std::optional<ScorePrefill> score;  // lines are texts to score; otherwise prompts
  std::shared_ptr<const ChatReading> chat;  // null: no line has "messages"
};

// Name of the input for people; the form of its lines goes by it.
inline std::string InputName(const std::filesystem::path& path, const ReaderOptions& options) {
  if (!options.input_name.empty()) return options.input_name;
  return path == "-" ? "standard input" : path.string();
}

using RequestOrError = std::variant<Request, LineError>;

}  // namespace spillway
