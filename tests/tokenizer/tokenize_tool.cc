// Drives the tokenizer from a script: reads one JSON value a line from stdin, writes one JSON line
// for each.
//   "text"              -> [ids]       {"plain":"text"} -> [ids] with special tokens as plain text
//   {"decode":[ids]}    -> "text"
// Usage: spillway_tokenize FOLDER VOCAB_ROWS < lines > lines. A fault of the files: message to
// stderr, its exit status.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "src/tokenizer/tokenizer.h"

namespace {

using nlohmann::json;
using spillway::SpecialText;

json Answer(const spillway::Tokenizer& tokenizer, const json& request) {
  if (request.is_string()) return tokenizer.Encode(request.get<std::string>(), SpecialText::kParse);
  if (request.contains("plain"))
    return tokenizer.Encode(request["plain"].get<std::string>(), SpecialText::kPlain);
  return tokenizer.Decode(request["decode"].get<std::vector<spillway::TokenId>>());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: spillway_tokenize FOLDER VOCAB_ROWS\n");
    return 2;
  }
  try {
    const auto tokenizer = spillway::OpenTokenizer(argv[1], std::stoll(argv[2]));
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << Answer(*tokenizer, json::parse(line)).dump() << '\n';
    }
  } catch (const spillway::Error& error) {
    std::fprintf(stderr, "%s\n", spillway::ErrorLine(error.code(), error.what()).c_str());
    return spillway::ExitStatus(error.code());
  }
  return 0;
}
