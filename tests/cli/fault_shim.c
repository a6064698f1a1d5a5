// Library for LD_PRELOAD that makes one allocation or one system call of a program fail
// (fault_sweep.py). Counts from the call of main on, over all threads. Variables:
//   FAULT_SHIM_KIND: "memory" (malloc and its like), or "calls" (the C library's calls of files,
//     mappings and threads)
//   FAULT_SHIM_AT: number of the one that fails; none where it is not set
//   FAULT_SHIM_LOG: a file of zeros that takes the hash of each one's call stack, 8 bytes each
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum Kind { kNone, kMemory, kCalls };
enum { kFrames = 24 };

static enum Kind armed;  // set while main runs
static enum Kind kind;
static long fail_at = -1;
static atomic_long count;
static uint64_t* log_entries;
static long num_log_entries;
static _Thread_local int inside
    __attribute__((tls_model("initial-exec")));  // the shim's own calls do not count

static uint64_t StackHash(void) {
  void* frames[kFrames];
  const int depth = backtrace(frames, kFrames);
  uint64_t hash = 14695981039346656037u;
  for (int i = 1; i < depth; ++i) hash = (hash ^ (uint64_t)frames[i]) * 1099511628211u;
  return hash | 1;
}

// Tells whether this one is to fail.
static int Fails(enum Kind which) {
  if (armed != which || inside) return 0;
  const long number = atomic_fetch_add(&count, 1);
  if (number < num_log_entries) {
    inside = 1;
    log_entries[number] = StackHash();
    inside = 0;
  }
  return number == fail_at;
}

static int Refuse(int error) {
  errno = error;
  return -1;
}

// Memory.

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static void* NoMemory(void) {
  errno = ENOMEM;
  return NULL;
}

void* malloc(size_t size) { return Fails(kMemory) ? NoMemory() : __libc_malloc(size); }
void* calloc(size_t n, size_t size) { return Fails(kMemory) ? NoMemory() : __libc_calloc(n, size); }
void* realloc(void* old, size_t size) {
  return Fails(kMemory) ? NoMemory() : __libc_realloc(old, size);
}
void* aligned_alloc(size_t align, size_t size) {
  return Fails(kMemory) ? NoMemory() : __libc_memalign(align, size);
}

int posix_memalign(void** out, size_t align, size_t size) {
  if (Fails(kMemory)) return ENOMEM;
  *out = __libc_memalign(align, size);
  return *out == NULL ? ENOMEM : 0;
}

// Calls. Standard streams are left alone: the error's line goes there.

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_openat, folder, path, flags, mode);
}
ssize_t read(int fd, void* into, size_t size) {
  return Fails(kCalls) ? Refuse(EIO) : syscall(SYS_read, fd, into, size);
}
ssize_t pread(int fd, void* into, size_t size, off_t at) {
  return Fails(kCalls) ? Refuse(EIO) : syscall(SYS_pread64, fd, into, size, at);
}
ssize_t write(int fd, const void* from, size_t size) {
  return fd > 2 && Fails(kCalls) ? Refuse(ENOSPC) : syscall(SYS_write, fd, from, size);
}
ssize_t pwrite(int fd, const void* from, size_t size, off_t at) {
  return Fails(kCalls) ? Refuse(EIO) : syscall(SYS_pwrite64, fd, from, size, at);
}
int fsync(int fd) { return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_fdatasync, fd); }
int ftruncate(int fd, off_t size) {
  return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_ftruncate, fd, size);
}
off_t lseek(int fd, off_t at, int from) {
  return fd > 2 && Fails(kCalls) ? Refuse(EIO) : syscall(SYS_lseek, fd, at, from);
}
int posix_fallocate(int fd, off_t at, off_t size) {
  if (Fails(kCalls)) return ENOSPC;
  return syscall(SYS_fallocate, fd, 0, at, size) == 0 ? 0 : errno;
}
int fstat(int fd, struct stat* status) {
  return fd > 2 && Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_fstat, fd, status);
}
int fstatat(int folder, const char* path, struct stat* status, int flags) {
  return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_newfstatat, folder, path, status, flags);
}
int renameat(int from, const char* old, int to, const char* path) {
  return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_renameat, from, old, to, path);
}
int renameat2(int from, const char* old, int to, const char* path, unsigned int flags) {
  return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_renameat2, from, old, to, path, flags);
}
int mkdirat(int folder, const char* path, mode_t mode) {
  return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_mkdirat, folder, path, mode);
}
int unlinkat(int folder, const char* path, int flags) {
  return Fails(kCalls) ? Refuse(EIO) : (int)syscall(SYS_unlinkat, folder, path, flags);
}
void* mmap(void* place, size_t size, int protection, int flags, int fd, off_t at) {
  if (!Fails(kCalls)) return (void*)syscall(SYS_mmap, place, size, protection, flags, fd, at);
  errno = ENOMEM;
  return MAP_FAILED;
}
int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*body)(void*), void* with) {
  static int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (Fails(kCalls)) return EAGAIN;
  inside = 1;
  if (create == NULL) create = (__typeof__(create))dlsym(RTLD_NEXT, "pthread_create");
  const int status = create(thread, how, body, with);
  inside = 0;
  return status;
}

// From main to its end.

static int (*program_main)(int, char**, char**);

static void OpenLog(const char* path) {
  const int fd = open(path, O_RDWR);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) _exit(99);
  num_log_entries = status.st_size / 8;
  log_entries = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (log_entries == MAP_FAILED) _exit(99);
  close(fd);
}

static int ArmedMain(int argc, char** argv, char** environment) {
  const char* kind_name = getenv("FAULT_SHIM_KIND");
  const char* at = getenv("FAULT_SHIM_AT");
  const char* log_path = getenv("FAULT_SHIM_LOG");
  if (kind_name != NULL) kind = strcmp(kind_name, "memory") == 0 ? kMemory : kCalls;
  if (at != NULL) fail_at = atol(at);
  if (log_path != NULL) OpenLog(log_path);
  StackHash();  // loads what it needs
  armed = kind;
  const int status = program_main(argc, argv, environment);
  armed = kNone;
  return status;
}

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(void),
                      void (*fini)(void), void (*end)(void), void* stack_end) {
  __typeof__(&__libc_start_main) start =
      (__typeof__(&__libc_start_main))dlsym(RTLD_NEXT, "__libc_start_main");
  program_main = main;
  return start(ArmedMain, argc, argv, init, fini, end, stack_end);
}
