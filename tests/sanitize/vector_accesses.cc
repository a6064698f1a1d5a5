// What the thread sanitizer does with an access wider than 16 bytes. GCC hands each one to
// __tsan_read_range or
// __tsan_write_range, and libtsan's own look at every eight bytes: four fifths of a run's time,
// nearly all of it for vectors that one thread reads from its tile or keeps on its stack. These
// take their place in each executable: a vector is looked at in its first and its last eight bytes,
// and not at all on the caller's own stack; whatever is longer than a vector goes to libtsan whole.

#include <cstdint>

extern "C" {
// From libtsan.
void __tsan_read8_pc(void* address, void* caller);
void __tsan_write8_pc(void* address, void* caller);
void __tsan_read_range_pc(void* address, unsigned long size, void* caller);
void __tsan_write_range_pc(void* address, unsigned long size, void* caller);
}

namespace {

constexpr unsigned long kVectorBytes = 64;
constexpr std::uintptr_t kNearStackBytes = 16 << 10;
constexpr std::uintptr_t kWordBytes = 8;

bool IsOnStack(void* address, void* frame) {
  return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(frame) <
         kNearStackBytes;
}

void* WordOf(void* address, unsigned long offset) {
  return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(address) + offset) &
                                 ~(kWordBytes - 1));
}

}  // namespace

extern "C" {

void __tsan_read_range(void* address, unsigned long size) {
  void* caller = __builtin_return_address(0);
  if (size > kVectorBytes) return __tsan_read_range_pc(address, size, caller);
  if (size == 0 || IsOnStack(address, __builtin_frame_address(0))) return;
  __tsan_read8_pc(WordOf(address, 0), caller);
  __tsan_read8_pc(WordOf(address, size - 1), caller);
}

void __tsan_write_range(void* address, unsigned long size) {
  void* caller = __builtin_return_address(0);
  if (size > kVectorBytes) return __tsan_write_range_pc(address, size, caller);
  if (size == 0 || IsOnStack(address, __builtin_frame_address(0))) return;
  __tsan_write8_pc(WordOf(address, 0), caller);
  __tsan_write8_pc(WordOf(address, size - 1), caller);
}

}  // extern "C"
