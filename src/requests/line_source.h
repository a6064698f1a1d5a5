// LineSource: a file as lines, whatever their length; memory is bounded by the longest line
// allowed.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/requests/input_bytes.h"

struct XXH64_state_s;

namespace spillway {

struct Line {
  int64_t number = 0;     // 1-based
  std::string_view text;  // without its end; of a line too long: empty
  int64_t num_bytes = 0;  // as it stands in the file, without the "\n"
  bool too_long = false;  // over the limit; its bytes were skipped up to the next line's
  bool blank = false;     // nothing but white space

  // Hash of its place and bytes; of a line too long, of its length.
  uint32_t Hash() const;
};

// First bytes of a file, behind its mark.
struct InputHead {
  std::string_view bytes;
  bool whole = false;  // the file has no more
};

// Lines end in "\n" or "\r\n", and in "\r" where a file has no "\n". The mark 0x1A that old editors
// put at a file's end is no part of its last line.

class LineSource {
 public:
  // Compressed bytes are decompressed. `name` stands in errors. Throws: Error kInput.
  LineSource(const std::filesystem::path& path, std::string name, int64_t max_line_bytes);
  ~LineSource();

  // Up to 256 KiB. Before Next. Lifetime: until Next. Throws: as Next.
  InputHead Head();

  // The next line, blank ones too; nullopt at the end. A byte order mark that opens the file is
  // dropped.
  // Lifetime: the text until the next call.
  // Throws: Error kIo; kInput: compressed data is damaged.
  std::optional<Line> Next();

  int64_t num_lines() const { return num_lines_; }
  int64_t num_blank_lines() const { return num_blank_lines_; }
  // Bytes of the lines given so far with their ends and of the mark, decompressed, not of what is
  // buffered ahead.
  int64_t num_bytes() const { return num_bytes_; }
  uint64_t hash() const;

 private:
  struct HashDeleter {
    void operator()(XXH64_state_s* state) const;
  };
  // Bytes of a line without its end, or where none came, of all that may be one line.
  struct Extent {
    std::size_t size = 0;
    bool ended = false;
  };

  bool Fill();
  Extent FindEnd();
  bool EndsInReturns(std::size_t size) const;
  bool IsLast(const Extent& extent);
  void Consume(std::size_t size);
  void SkipByteOrderMark();
  int64_t SkipLine();

  InputBytes file_;
  std::size_t max_line_bytes_;
  char line_end_ = '\n';
  std::vector<char> buffer_;  // [begin_, end_) is unread
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool at_end_ = false;
  int64_t num_lines_ = 0;
  int64_t num_blank_lines_ = 0;
  int64_t num_bytes_ = 0;
  std::unique_ptr<XXH64_state_s, HashDeleter> hash_;
};

}  // namespace spillway
