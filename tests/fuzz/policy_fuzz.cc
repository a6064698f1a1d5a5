// A policy file.
#include "src/formats/policy_file.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  ReadPolicy(folder.Write("policy.json", bytes));
}

}  // namespace spillway::fuzz
