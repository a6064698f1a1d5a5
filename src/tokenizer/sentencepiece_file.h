// Reads and checks a SentencePiece `.model` file before the library may see it: the library trusts
// the offsets in its normalisation table (CVE-2026-1260 and the like) and prints its own
// complaints. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace spillway {

struct SentencePiece {
  enum class Type {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  std::string text;
  Type type = Type::kNormal;
};

struct SentencePieceFile {
  enum class Model { kUnigram = 1, kBpe = 2 };
  std::string bytes;                  // the whole file
  std::vector<SentencePiece> pieces;  // by id
  Model model = Model::kUnigram;
  std::string chars_map;         // the normalisation table; sound; may be empty
  bool add_dummy_prefix = true;  // a space in front of every text
  bool remove_extra_whitespaces = true;
};

// Throws: Error kTokenizer when the file is no such model, or one that the library could not be
// trusted with.
SentencePieceFile ReadSentencePieceFile(const std::filesystem::path& file);

}  // namespace spillway
