#include "tests/soft_gpu/block.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace spillway::soft_gpu {
namespace {

constexpr unsigned kWarp = 32;
constexpr std::size_t kStackBytes = 64 << 10;

struct Copy {
  void* to;
  std::vector<std::byte> bytes;
};

enum class State { kRuns, kAtBlock, kAtWarp, kEnded };

// ucontext makes a stack; from then on _setjmp and _longjmp switch, which ask the kernel nothing.
// A fiber runs one thread after the other, of all blocks.
struct Fiber {
  ucontext_t context;
  jmp_buf place;
  bool has_begun = false;
  std::unique_ptr<char[]> stack;
  State state = State::kEnded;
  Index3 index;
  unsigned num_exchanges = 0;
  std::vector<Copy> begun;
  std::deque<std::vector<Copy>> committed;
};

struct Warp {
  std::array<std::array<LaneData, kWarp>, 2> shown;  // of even and odd exchanges
};

class Block {
 public:
  void Run(const Index3& block, const Index3& grid, unsigned threads,
           const std::function<void()>& kernel);

  Fiber& current() { return *current_; }
  Warp& warp() { return warps_[current_->index.x / kWarp]; }
  const Index3& block() const { return block_; }
  const Index3& grid() const { return grid_; }
  void Wait(State state) {
    current_->state = state;
    if (_setjmp(current_->place) == 0) _longjmp(scheduler_, 1);
  }

 private:
  static void Enter();
  void Start(Fiber& fiber);
  void MakeContext(Fiber& fiber);
  [[noreturn]] static void Resume(Fiber& fiber);
  void RunThoseWhoCan();
  bool ReleaseWarps();
  bool ReleaseBlock();

  Index3 block_;
  Index3 grid_;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<Fiber> fibers_;
  std::size_t num_fibers_ = 0;
  std::vector<Warp> warps_;
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;  // of order_
  std::mt19937 random_{1};
  Fiber* current_ = nullptr;
  jmp_buf scheduler_;
  std::exception_ptr thrown_;
};

Block the_block;  // whose threads run

void Block::Enter() {
  Block& block = the_block;
  for (;;) {
    try {
      (*block.kernel_)();
    } catch (...) {
      block.thrown_ = std::current_exception();
    }
    block.Wait(State::kEnded);
  }
}

// Fibers that an exception of another one left within a kernel begin anew.
void Block::Start(Fiber& fiber) {
  if (fiber.stack == nullptr || fiber.state != State::kEnded) MakeContext(fiber);
  fiber.state = State::kRuns;
  fiber.num_exchanges = 0;
  fiber.begun.clear();
  fiber.committed.clear();
}

void Block::MakeContext(Fiber& fiber) {
  if (fiber.stack == nullptr) fiber.stack = std::make_unique<char[]>(kStackBytes);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Block::Enter, 0);
  fiber.has_begun = false;
}

void Block::Run(const Index3& block, const Index3& grid, unsigned threads,
                const std::function<void()>& kernel) {
  block_ = block;
  grid_ = grid;
  kernel_ = &kernel;
  num_fibers_ = threads;
  if (fibers_.size() < num_fibers_) fibers_.resize(num_fibers_);
  warps_.resize((threads + kWarp - 1) / kWarp);
  order_.resize(num_fibers_);
  for (std::size_t i = 0; i < num_fibers_; ++i) {
    fibers_[i].index = {static_cast<unsigned>(i), 0, 0};
    order_[i] = i;
    Start(fibers_[i]);
  }
  std::ranges::shuffle(order_, random_);
  for (;;) {
    RunThoseWhoCan();
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    if (ReleaseWarps() || ReleaseBlock()) continue;
    const auto ended = [](const Fiber& fiber) { return fiber.state == State::kEnded; };
    if (std::all_of(fibers_.begin(), fibers_.begin() + threads, ended)) return;
    throw std::logic_error("a warp's lanes, or a block's threads, wait for some that do not come");
  }
}

void Block::Resume(Fiber& fiber) {
  if (fiber.has_begun) _longjmp(fiber.place, 1);
  fiber.has_begun = true;
  setcontext(&fiber.context);
  std::abort();  // it does not return
}

void Block::RunThoseWhoCan() {
  // A member: what a function has in registers is lost over _setjmp.
  for (next_ = 0; next_ < num_fibers_; ++next_) {
    current_ = &fibers_[order_[next_]];
    if (current_->state != State::kRuns || thrown_) continue;
    if (_setjmp(scheduler_) == 0) Resume(*current_);
  }
}

// An exchange is of all 32 lanes: every kernel here says so in its mask.
bool Block::ReleaseWarps() {
  bool any = false;
  for (std::size_t first = 0; first < num_fibers_; first += kWarp) {
    const auto begin = fibers_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + kWarp;
    const auto waits = [](const Fiber& fiber) { return fiber.state == State::kAtWarp; };
    if (first + kWarp > num_fibers_ || !std::all_of(begin, end, waits)) continue;
    for (auto fiber = begin; fiber != end; ++fiber) fiber->state = State::kRuns;
    any = true;
  }
  return any;
}

bool Block::ReleaseBlock() {
  bool any = false;
  for (std::size_t i = 0; i < num_fibers_; ++i) {
    if (fibers_[i].state == State::kAtWarp) return false;
    any |= fibers_[i].state == State::kAtBlock;
  }
  for (std::size_t i = 0; i < num_fibers_; ++i) {
    if (fibers_[i].state == State::kAtBlock) fibers_[i].state = State::kRuns;
  }
  return any;
}

void Land(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
}

}  // namespace

void RunGrid(const Index3& grid, unsigned threads, const std::function<void()>& kernel) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) the_block.Run({x, y, 0}, grid, threads, kernel);
  }
}

const Index3& ThreadIndex() { return the_block.current().index; }
const Index3& BlockIndex() { return the_block.block(); }
const Index3& GridSize() { return the_block.grid(); }
unsigned Lane() { return ThreadIndex().x % kWarp; }

void WaitForBlock() { the_block.Wait(State::kAtBlock); }

const LaneData* Exchange(const LaneData& own) {
  Block& block = the_block;
  auto& shown = block.warp().shown[block.current().num_exchanges++ % 2];
  shown[Lane()] = own;
  block.Wait(State::kAtWarp);
  return shown.data();
}

void CopyLater(void* to, const void* from, int bytes) {
  const auto* begin = static_cast<const std::byte*>(from);
  the_block.current().begun.push_back({to, {begin, begin + bytes}});
}

void CommitCopies() {
  Fiber& fiber = the_block.current();
  fiber.committed.push_back(std::move(fiber.begun));
  fiber.begun.clear();
}

void WaitForCopies(int pending) {
  auto& committed = the_block.current().committed;
  while (committed.size() > static_cast<std::size_t>(pending)) {
    Land(committed.front());
    committed.pop_front();
  }
}

}  // namespace spillway::soft_gpu
