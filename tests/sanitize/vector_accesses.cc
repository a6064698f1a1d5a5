// Looks of the thread sanitizer at vectors. GCC hands an access of more than 16 bytes, or one
// that need not be aligned, to __tsan_read_range or __tsan_write_range, and libtsan's own look at
// every eight bytes there: four fifths of a run's time, nearly all of it for vectors that one
// thread reads from its tile or keeps on its stack. These take their place in each executable. Of
// 32 bytes, and of each half of 64, the first and the last few are looked at; on the caller's own
// stack none, so that a vector there that it shares with a worker is seen on the worker's side
// only. Aligned accesses of 2, 4 and 8 bytes are looked at whole, and all other sizes go to
// libtsan: structs are copied by those.

#include <cstdint>

extern "C" {
// libtsan's own.
void __tsan_read1_pc(void* address, void* caller);
void __tsan_read2_pc(void* address, void* caller);
void __tsan_read4_pc(void* address, void* caller);
void __tsan_read8_pc(void* address, void* caller);
void __tsan_write1_pc(void* address, void* caller);
void __tsan_write2_pc(void* address, void* caller);
void __tsan_write4_pc(void* address, void* caller);
void __tsan_write8_pc(void* address, void* caller);
void __tsan_read_range_pc(void* address, unsigned long size, void* caller);
void __tsan_write_range_pc(void* address, unsigned long size, void* caller);
}

namespace {

constexpr unsigned long kHalfVector = 32;
constexpr std::uintptr_t kNearStackBytes = 16 << 10;

struct Looks {
  void (*aligned[4])(void* address, void* caller);  // of 1, 2, 4 and 8 bytes
  void (*range)(void* address, unsigned long size, void* caller);
};
constexpr Looks kReads = {{__tsan_read1_pc, __tsan_read2_pc, __tsan_read4_pc, __tsan_read8_pc},
                          __tsan_read_range_pc};
constexpr Looks kWrites = {{__tsan_write1_pc, __tsan_write2_pc, __tsan_write4_pc, __tsan_write8_pc},
                           __tsan_write_range_pc};

std::uintptr_t Number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

// Logarithm (base 2) of the largest access that is aligned there; 3 at most.
int Alignment(std::uintptr_t address) { return __builtin_ctzl(address | 8); }

// Looks at as many bytes of each end as are aligned there: the others in their eight may be another
// thread's.
void LookAtEnds(const Looks& looks, char* begin, void* caller) {
  const int first = Alignment(Number(begin));
  const int last = Alignment(Number(begin) + kHalfVector);
  looks.aligned[first](begin, caller);
  looks.aligned[last](begin + kHalfVector - (1UL << last), caller);
}

inline __attribute__((always_inline)) void LookAt(const Looks& looks, void* address,
                                                  unsigned long size) {
  void* caller = __builtin_return_address(0);
  if (size == kHalfVector || size == 2 * kHalfVector) {
    if (Number(address) - Number(__builtin_frame_address(0)) < kNearStackBytes) return;
    char* begin = static_cast<char*>(address);
    LookAtEnds(looks, begin, caller);
    if (size > kHalfVector) LookAtEnds(looks, begin + kHalfVector, caller);
  } else if ((size == 2 || size == 4 || size == 8) && Number(address) % size == 0) {
    looks.aligned[Alignment(size)](address, caller);
  } else {
    looks.range(address, size, caller);
  }
}

}  // namespace

extern "C" {

void __tsan_read_range(void* address, unsigned long size) { LookAt(kReads, address, size); }

void __tsan_write_range(void* address, unsigned long size) { LookAt(kWrites, address, size); }

}  // extern "C"
