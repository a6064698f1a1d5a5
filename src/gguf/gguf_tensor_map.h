// GgufTensorMap: what a GGUF file calls its tensors, and how llama.cpp has changed them, by
// architecture. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// Change that llama.cpp makes to a published tensor, which reading undoes.
enum class GgufChange {
  kNone,
  kPairsTogether,  // rows of a head: the two halves of a rotated pair side by side
  kOneAdded,       // a norm's weights, which multiply as one more than they are published
  kRowAlone,       // a matrix of one row, as a vector
};

struct PublishedName {
  std::string name;  // Hugging Face's
  GgufChange change = GgufChange::kNone;
};

// True for an architecture of general.architecture that is read.
bool IsGgufArchitecture(std::string_view architecture);

// "gemma3, llama, ...", for messages.
std::string GgufArchitectures();

// Nullopt: a tensor that the model's published form does not have.
std::optional<PublishedName> PublishedNameOf(std::string_view architecture,
                                             std::string_view gguf_name);

}  // namespace spillway
