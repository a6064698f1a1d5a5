// Keys of a request, in the line or in its body: which there are, and which of them nothing reads.
// Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "src/requests/documented_keys.h"  // BodyForm
#include "src/requests/key_check.h"
#include "src/requests/line_fault.h"

namespace spillway {

// Hugging Face's switch between sampling and the likeliest token, which the temperature is here.
inline constexpr std::string_view kSwitchKey = "do_sample";

// "method", "url" and "body" of the Batch form.
bool IsBatchKey(std::string_view key);

// Keys of a body, those of the other form among them that may be null.
bool IsKeyOf(std::string_view key, BodyForm form);

// Keys of a body that a misspelt one may mean.
std::span<const std::string_view> NearKeys(BodyForm form);

// Names that other programs have for keys which decide the answer.
std::span<const OtherName> OtherNames();

// Whether a line to be answered, or one to be scored, is read by this key of it or of its body.
bool IsReadToAnswer(std::string_view key);
bool IsReadToScore(std::string_view key);

// Fault of the first key that holds NaN or Infinity, in a line or its body, unless nothing reads
// it.
MaybeFault CheckNonFinite(const nlohmann::json& keys, bool (*is_read)(std::string_view key));

}  // namespace spillway
