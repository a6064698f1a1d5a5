// A SentencePiece `.model` of LLaMA's or Gemma's kind as the BPE tokenizer that transformers makes
// of it. Plain functions; any thread.
#pragma once

#include <vector>

#include "src/tokenizer/bpe_tokenizer.h"
#include "src/tokenizer/folder_settings.h"
#include "src/tokenizer/sentencepiece_file.h"

namespace spillway {

// True where transformers makes a plain BPE tokenizer of it that follows a class's rules; else the
// library's encoding is what counts.
bool IsPlainBpe(const SentencePieceFile& model, const FolderSettings& settings);

// `added` and the frame are the caller's, checked. Requires: IsPlainBpe.
BpeParts MakePlainBpe(const SentencePieceFile& model, const FolderSettings& settings,
                      std::vector<AddedToken> added);

}  // namespace spillway
