// A machine file; one that is taken must be the same when written and read again.
#include <cstdlib>
#include <string>

#include "src/formats/machine_file.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  const std::string text = MachineJson(ReadMachine(folder.Write("machine.json", bytes)));
  if (MachineJson(ReadMachine(folder.Write("machine.json", text))) != text) std::abort();
}

}  // namespace spillway::fuzz
