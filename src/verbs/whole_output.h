// WholeOutput: an output that one run writes from beginning to end; half of it is of no use, so
// that nothing stays of a run that does not finish. Thread rule: one thread.
#pragma once

#include <string>

#include "src/answers/output_file.h"
#include "src/config/config.h"

namespace spillway {

class WholeOutput {
 public:
  // --output, and --overwrite. Throws: Error kOutputExists, which also spares what a run has left
  // to go on with; kInput: it is the input; kIo.
  explicit WholeOutput(const Config& config);
  ~WholeOutput();
  WholeOutput(const WholeOutput&) = delete;
  WholeOutput& operator=(const WholeOutput&) = delete;

  // Adds a line without its newline. Throws: Error kIo, kDiskSpace.
  void Add(const std::string& line);

  // Gives the output its name. Throws: as Add.
  void Finish();

 private:
  void Flush();

  OutputFile file_;
  std::string buffer_;
  bool finished_ = false;
};

}  // namespace spillway
