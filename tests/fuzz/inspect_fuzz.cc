// A file that `inspect` tells the kind of: machine, policy, report, plan or trace.
#include "src/verbs/inspect_file.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  DescribeFile(folder.Write("file.json", bytes));
}

}  // namespace spillway::fuzz
