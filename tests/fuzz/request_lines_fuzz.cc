// Request lines of every form, read as `generate` and `score` read a file of them.
#include <ctime>
#include <memory>

#include "src/requests/reader.h"
#include "tests/fuzz/fuzz_case.h"
#include "tests/requests/fake_tokenizer.h"

namespace spillway::fuzz {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m.tool_calls | tojson }}{% endfor %}"
    "{{ tools | tojson }}{{ x | tojson }}";

std::shared_ptr<const ChatReading> ReadChats(const Folder& folder) {
  folder.Write("chat_template.jinja", kTemplate);
  return std::make_shared<const ChatReading>(folder.path(), "", std::tm(), "");
}

ReaderOptions Options(const Folder& folder) {
  ReaderOptions options;
  options.max_positions = 512;
  options.vocab_rows = FakeTokenizer::kFirstPiece;
  options.start_token = FakeTokenizer::kStart;
  options.max_line_bytes = 4096;
  options.chat = ReadChats(folder);
  return options;
}

void ReadAll(const std::filesystem::path& file, const ReaderOptions& options) {
  const FakeTokenizer tokenizer;
  RequestReader reader(file, tokenizer, options);
  while (reader.Next()) {
  }
}

}  // namespace

void Take(std::string_view bytes) {
  static const Folder folder;
  static const ReaderOptions generate = Options(folder);
  static const ReaderOptions score = [] {
    ReaderOptions options = generate;
    options.score = ScorePrefill();
    return options;
  }();
  ReadAll(folder.Write("in.jsonl", bytes), generate);
  ReadAll(folder.path() / "in.jsonl", score);
  ReadAll(folder.Write("in.txt", bytes), generate);
}

}  // namespace spillway::fuzz
