#include "src/base/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/cpu_topology.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

// Long enough to bridge the gap between two ops of a layer, short enough that I/O threads on the
// same cores barely notice: a wake-up through the futex costs 5 to 50 us, a Run of ready workers
// about 1 us.
constexpr auto kSpin = std::chrono::microseconds(40);

constexpr uint32_t kClosed = 1U << 31;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Returns once `value` differs from `old`.
template <typename T>
void SpinThenWait(const std::atomic<T>& value, T old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
}

void PinSelf(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);  // a refusal costs speed only
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> threads;
  std::atomic<uint32_t> epoch{0};  // one per Run; the workers wait on it
  // Workers inside the running Run, and kClosed when no more may enter: Run waits for those who
  // came, not for one whose core another program has.
  std::atomic<uint32_t> gate{kClosed};
  std::atomic<uint64_t> ticks{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  // The tasks that one worker begins with. They lie side by side, so that it reads memory in one
  // stream. Written by Run while the gate is closed and nobody inside, but for `next`.
  struct alignas(64) Part {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::vector<Part> parts;  // one a worker
  const TaskRef* task = nullptr;
  std::exception_ptr error;  // the first failure's; written by whoever set `failed`

  bool Enter();
  void Leave();
  void Drain(int worker);
  void DrainPart(Part& part, int worker);
  void Work(int worker, int cpu);
};

bool ThreadPool::State::Enter() {
  uint32_t inside = gate.load(std::memory_order_relaxed);
  while ((inside & kClosed) == 0) {
    if (gate.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire,
                                   std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::State::Leave() {
  if (gate.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) gate.notify_one();
}

void ThreadPool::State::Drain(int worker) {
  const size_t own = static_cast<size_t>(worker);
  for (size_t i = 0; i < parts.size(); ++i) DrainPart(parts[(own + i) % parts.size()], worker);
}

void ThreadPool::State::DrainPart(Part& part, int worker) {
  while (!failed.load(std::memory_order_relaxed)) {
    const int64_t index = part.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= part.end) return;
    try {
      (*task)(index, worker);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
}

void ThreadPool::State::Work(int worker, int cpu) {
  if (cpu >= 0) PinSelf(cpu);
  uint32_t seen = 0;
  for (;;) {
    SpinThenWait(epoch, seen);
    seen = epoch.load(std::memory_order_acquire);
    if (stop.load(std::memory_order_relaxed)) return;
    if (!Enter()) continue;
    Drain(worker);
    Leave();
  }
}

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  state_->parts = std::vector<State::Part>(static_cast<size_t>(std::max(1, num_threads)));
  const std::vector<int> cpus = PhysicalCores();
  // Signals belong to the program's main thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int worker = 1; worker < num_threads; ++worker) {
      // The caller is not pinned: threads it starts later would inherit its mask. Worker w leaves
      // cpus[0] to it.
      const bool fits = num_threads <= static_cast<int>(cpus.size());
      const int cpu = fits ? cpus[static_cast<size_t>(worker)] : -1;
      state_->threads.emplace_back(
          [state = state_.get(), worker, cpu] { state->Work(worker, cpu); });
    }
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    Stop();
    ThrowSystemError(error.code().value(), fmt::format("cannot start {} threads", num_threads),
                     ErrorCode::kSystemLimit, "give fewer --threads");
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    Stop();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Stop() {
  state_->stop.store(true, std::memory_order_relaxed);
  state_->epoch.fetch_add(1, std::memory_order_release);
  state_->epoch.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::Run(int64_t num_tasks, TaskRef task) {
  State& state = *state_;
  const auto num_parts = static_cast<int64_t>(state.parts.size());
  for (int64_t i = 0, begin = 0; i < num_parts; ++i) {
    State::Part& part = state.parts[static_cast<size_t>(i)];
    part.next.store(begin, std::memory_order_relaxed);
    part.end = begin += num_tasks / num_parts + (i < num_tasks % num_parts);
  }
  state.task = &task;
  state.failed.store(false, std::memory_order_relaxed);
  const bool alone = num_tasks <= 1 || state.threads.empty();
  if (!alone) {
    state.gate.store(0, std::memory_order_release);
    state.epoch.fetch_add(1, std::memory_order_release);
    state.epoch.notify_all();
  }
  state.Drain(0);
  if (!alone) {
    uint32_t inside = state.gate.fetch_or(kClosed, std::memory_order_acquire) | kClosed;
    for (; inside != kClosed; inside = state.gate.load(std::memory_order_acquire)) {
      SpinThenWait(state.gate, inside);
    }
  }
  if (state.failed.load(std::memory_order_relaxed)) {
    std::rethrow_exception(std::exchange(state.error, nullptr));
  }
}

int64_t ThreadPool::NextTask(int64_t task) const {
  const auto ends = [&](const State::Part& part) { return part.end == task + 1; };
  return std::ranges::any_of(state_->parts, ends) ? -1 : task + 1;
}

void ThreadPool::Tick() { state_->ticks.fetch_add(1, std::memory_order_relaxed); }

uint64_t ThreadPool::Pulse() const {
  uint64_t pulse =
      state_->epoch.load(std::memory_order_relaxed) + state_->ticks.load(std::memory_order_relaxed);
  for (const State::Part& part : state_->parts)
    pulse = 31 * pulse + static_cast<uint64_t>(part.next.load(std::memory_order_relaxed));
  return pulse;
}

int NumPhysicalCores() { return static_cast<int>(PhysicalCores().size()); }

}  // namespace spillway
