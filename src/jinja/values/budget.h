// Budget: what one rendering may still do, and how much it may hold at a time. Values and what
// makes them take from the budget of the rendering that runs on their thread, before they make
// anything; outside a rendering nothing is counted. It belongs to the thread and is no argument,
// because every operator of Python makes values.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace spillway::jinja {

class Budget {
 public:
  // `units` of work; `bytes` that all values of the rendering hold together.
  Budget(std::size_t units, std::size_t bytes) : units_(units), bytes_(bytes) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Throws: Fault where that is more than is left.
  void Spend(std::size_t units);
  // Asks for room of so many bytes, without taking it. Throws: Fault.
  void Check(std::size_t bytes) const;
  // Takes room, and the work that filling it is. Throws: Fault.
  void Hold(std::size_t bytes);
  void Release(std::size_t bytes) noexcept { held_ -= bytes; }

  // The one of the rendering that runs on this thread; null: none does.
  static Budget* Current();

  // Makes a budget the thread's for as long as this lives.
  class Use {
   public:
    explicit Use(Budget& budget);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Budget* outer_;
  };

 private:
  std::size_t units_;
  std::size_t bytes_;
  std::size_t spent_ = 0;
  std::size_t held_ = 0;
};

// Spend and Check of the thread's budget.
void Spend(std::size_t units);
void CheckRoom(double bytes);
// Work of looking at each byte of a text once.
void SpendOnText(std::size_t bytes);

// Bytes of the budget that an object holds as long as it lives. Lifetime: the budget outlives it.
class Held {
 public:
  Held() : budget_(Budget::Current()) {}
  explicit Held(std::size_t bytes) : Held() { Add(bytes); }
  Held(const Held& other) : Held(other.bytes_) {}
  Held(Held&& other) noexcept : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
  Held& operator=(Held other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Held() {
    if (budget_ != nullptr) budget_->Release(bytes_);
  }

  // Throws: Fault; then nothing is added.
  void Add(std::size_t bytes) {
    if (budget_ == nullptr) return;
    budget_->Hold(bytes);
    bytes_ += bytes;
  }

 private:
  Budget* budget_;
  std::size_t bytes_ = 0;
};

// Allocator that holds what it allocates. A copy of a container is paid for by whoever copies.
template <typename T>
class CountingAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  CountingAllocator() noexcept : budget_(Budget::Current()) {}
  template <typename Other>
  CountingAllocator(const CountingAllocator<Other>& other) noexcept  // NOLINT: converts
      : budget_(other.budget()) {}

  T* allocate(std::size_t count) {
    if (budget_ != nullptr) budget_->Hold(count * sizeof(T));
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* place, std::size_t count) noexcept {
    if (budget_ != nullptr) budget_->Release(count * sizeof(T));
    std::allocator<T>().deallocate(place, count);
  }
  CountingAllocator select_on_container_copy_construction() const { return {}; }

  Budget* budget() const { return budget_; }
  bool operator==(const CountingAllocator& other) const { return budget_ == other.budget_; }

 private:
  Budget* budget_;
};

template <typename T, typename... Args>
std::shared_ptr<T> MakeShared(Args&&... args) {
  return std::allocate_shared<T>(CountingAllocator<std::remove_const_t<T>>(),
                                 std::forward<Args>(args)...);
}

}  // namespace spillway::jinja
