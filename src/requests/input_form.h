// Form of an input file: lines of JSON, lines of text, or something else, which is refused as a
// whole. Plain functions; any thread.
#pragma once

#include <filesystem>
#include <string>

#include "src/requests/line_source.h"  // InputHead

namespace spillway {

enum class InputForm { kJsonLines, kPlainLines };

// ".txt" of "in.TXT.gz": in small letters, and of what is packed in it.
std::string UnpackedExtension(const std::filesystem::path& path);

// ".txt" in any case, a ".gz" or ".zst" behind it passed over: one prompt a line.
InputForm FormOf(const std::filesystem::path& path);

// Refuses a file that holds no lines of its form: UTF-16, tables and archives by their first bytes,
// and where lines of JSON are wanted one JSON document over several lines, CSV, plain text. A file
// with one line that may be a request is one of lines, whatever the others are. `name` is the
// file's, for people.
// Throws: Error kInput naming the form and what to do.
void RefuseOtherForm(const InputHead& head, InputForm form, const std::string& name);

}  // namespace spillway
