// What the thread sanitizer does with an access wider than 16 bytes. GCC hands each one to
// __tsan_read_range or
// __tsan_write_range, and libtsan's own look at every eight bytes: four fifths of a run's time,
// nearly all of it for vectors that one thread reads from its tile or keeps on its stack. These
// take their place in each executable: a vector is looked at in its first and its last few bytes,
// and not at all on the caller's own stack; whatever is longer than a vector goes to libtsan whole.

#include <cstdint>

extern "C" {
// From libtsan.
void __tsan_read2_pc(void* address, void* caller);
void __tsan_read4_pc(void* address, void* caller);
void __tsan_read8_pc(void* address, void* caller);
void __tsan_write2_pc(void* address, void* caller);
void __tsan_write4_pc(void* address, void* caller);
void __tsan_write8_pc(void* address, void* caller);
void __tsan_read_range_pc(void* address, unsigned long size, void* caller);
void __tsan_write_range_pc(void* address, unsigned long size, void* caller);
}

namespace {

constexpr unsigned long kVectorBytes = 64;
constexpr std::uintptr_t kNearStackBytes = 16 << 10;

std::uintptr_t Number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

// Vectors only: of whole elements of two bytes or more.
bool IsVector(void* address, unsigned long size) {
  return size >= 8 && size <= kVectorBytes && Number(address) % 2 == 0 && size % 8 == 0;
}

bool IsOnStack(void* address, void* frame) {
  return Number(address) - Number(frame) < kNearStackBytes;
}

void* LastOf(void* address, unsigned long size, unsigned long part) {
  return static_cast<char*>(address) + size - part;
}

}  // namespace

extern "C" {

void __tsan_read_range(void* address, unsigned long size) {
  void* caller = __builtin_return_address(0);
  if (!IsVector(address, size)) return __tsan_read_range_pc(address, size, caller);
  if (IsOnStack(address, __builtin_frame_address(0))) return;
  // Its neighbours in the same eight bytes may be another thread's.
  if (Number(address) % 8 == 0) {
    __tsan_read8_pc(address, caller);
    __tsan_read8_pc(LastOf(address, size, 8), caller);
  } else if (Number(address) % 4 == 0) {
    __tsan_read4_pc(address, caller);
    __tsan_read4_pc(LastOf(address, size, 4), caller);
  } else {
    __tsan_read2_pc(address, caller);
    __tsan_read2_pc(LastOf(address, size, 2), caller);
  }
}

void __tsan_write_range(void* address, unsigned long size) {
  void* caller = __builtin_return_address(0);
  if (!IsVector(address, size)) return __tsan_write_range_pc(address, size, caller);
  if (IsOnStack(address, __builtin_frame_address(0))) return;
  if (Number(address) % 8 == 0) {
    __tsan_write8_pc(address, caller);
    __tsan_write8_pc(LastOf(address, size, 8), caller);
  } else if (Number(address) % 4 == 0) {
    __tsan_write4_pc(address, caller);
    __tsan_write4_pc(LastOf(address, size, 4), caller);
  } else {
    __tsan_write2_pc(address, caller);
    __tsan_write2_pc(LastOf(address, size, 2), caller);
  }
}

}  // extern "C"
