// A pickle by itself, without the zip and its checksums.
#include "src/checkpoint/pickle_machine.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  PickleHeap heap;
  PickleMachine(bytes, heap, "data.pkl").Run();
}

}  // namespace spillway::fuzz
