// RequestReader: the input file as a stream of requests and line errors, in order; memory does not
// grow with the number of lines.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "src/requests/request_lines.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

class RequestReader {
 public:
  // `path` "-" is standard input. A name that ends in ".txt" holds one prompt a line. What is
  // compressed with gzip or zstd is read as what it holds.
  // Lifetime: the tokenizer outlives the reader.
  // Throws: Error kInput when the file cannot be used as a whole.
  RequestReader(const std::filesystem::path& path, const Tokenizer& tokenizer,
                const ReaderOptions& options);
  ~RequestReader();

  // Expects the lines that an earlier reading found: the hash of each that Next gives, and no more
  // lines. From here on Next and Skip throw, too: Error kResume, a line is another than it was,
  // which is not given. Requires: no line has been read.
  void Expect(std::vector<uint32_t> line_hashes);

  // Refuses a file of another form, as RefuseOtherForm. Requires: no line has been read.
  // Throws: Error kInput, kIo.
  void CheckForm();

  // The next line of the shard that is not blank (nothing but white space); nullopt at the end,
  // with all of the file read.
  // Throws: Error kIo; kInput: compressed data is damaged.
  std::optional<RequestOrError> Next();

  // Passes over the next `count` lines that Next would give, unparsed; false: there are fewer.
  // Throws: Error kIo.
  bool Skip(int64_t count);

  int64_t num_lines_read() const;  // blank ones included
  int64_t num_blank_lines() const;
  int64_t num_bytes_read() const;  // of the lines given so far, not of what is buffered ahead
  uint64_t input_hash() const;     // xxh64 of those bytes

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway
