// Races that vector_accesses.cc must let the thread sanitizer see: `races NAME` makes one. The
// sizes are those of a vector of 64 bytes, and of a struct.

#include <cstdio>
#include <string_view>
#include <thread>

namespace {

struct Vector {
  float lanes[16];
};

struct Three {
  long first;
  long middle;
  long last;
};

alignas(64) float floats[64];
const Vector ones = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
Three three;

__attribute__((noinline)) void Store(float* at) { *reinterpret_cast<Vector*>(at) = ones; }

// Two threads each store a vector, the second `apart` floats behind the first.
void StoreBoth(int apart) {
  std::thread other([] { Store(floats); });
  Store(floats + apart);
  other.join();
}

void CopyWhileWritten() {
  std::thread other([] { three.middle = 1; });
  static Three copy;
  copy = three;
  other.join();
  std::printf("%ld\n", copy.middle);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "same") StoreBoth(0);
  if (name == "half") StoreBoth(8);
  if (name == "neighbours") StoreBoth(16);
  if (name == "struct") CopyWhileWritten();
  std::printf("%s: %f\n", argv[1], static_cast<double>(floats[0]));
  return 0;
}
