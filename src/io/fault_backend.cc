#include "src/io/fault_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "spillway/error.h"
#include "src/base/io_thread.h"

namespace spillway {
namespace {

bool Hits(const Fault& fault, DiskOp op, int64_t attempt) {
  if (fault.op != op || attempt < fault.first) return false;
  return fault.period == 0 ? attempt == fault.first : (attempt - fault.first) % fault.period == 0;
}

// A direct file cannot be asked for part of a block: then the whole is moved and the rest spoiled.
bool CanAskFor(const DiskRequest& request, int64_t bytes) {
  return !request.file->direct() || bytes % kDiskBlockBytes == 0;
}

// Offset at which a misdirected request ends up: still inside the file.
int64_t WrongOffset(const DiskRequest& request, int64_t shift) {
  const int64_t places = (request.file->size() - request.bytes()) / kDiskBlockBytes + 1;
  const int64_t block = request.offset / kDiskBlockBytes + shift / kDiskBlockBytes;
  return block % places * kDiskBlockBytes;
}

// The request that reaches the inner backend instead.
DiskRequest Bend(const DiskRequest& request, const Fault& fault) {
  DiskRequest bent = request;
  if (fault.kind == FaultKind::kMisdirected) bent.offset = WrongOffset(request, fault.value);
  if (fault.kind == FaultKind::kShort && CanAskFor(request, fault.value)) {
    bent.memory =
        bent.memory.first(std::min(bent.memory.size(), static_cast<std::size_t>(fault.value)));
  }
  return bent;
}

// Spoils what came back; returns the result to tell.
int64_t Spoil(const DiskRequest& request, const Fault& fault, int64_t result) {
  if (result <= 0) return result;
  const auto bytes = static_cast<std::size_t>(result);
  if (fault.kind == FaultKind::kFlip) {
    const auto bit = static_cast<std::size_t>(fault.value) % (bytes * 8);
    request.memory[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  if (fault.kind == FaultKind::kZero) std::memset(request.memory.data(), 0, bytes);
  if (fault.kind == FaultKind::kShort && result > fault.value) {
    const auto told = static_cast<std::size_t>(fault.value);
    if (request.op == DiskOp::kRead) std::memset(&request.memory[told], 0xEE, bytes - told);
    return fault.value;
  }
  return result;
}

bool NeverStarts(const Fault& fault) {
  return fault.kind == FaultKind::kError || fault.kind == FaultKind::kLost ||
         (fault.kind == FaultKind::kShort && fault.value == 0);
}

int64_t ToldResult(const Fault& fault, const DiskRequest& request) {
  if (fault.kind == FaultKind::kError) return -fault.value;
  return fault.kind == FaultKind::kLost ? request.bytes() : 0;
}

}  // namespace

FaultBackend::FaultBackend(std::unique_ptr<DiskBackend> inner, FaultPlan plan)
    : plan_(std::move(plan)), random_(plan_.seed), inner_(std::move(inner)) {
  deliverer_ = StartIoThread([this] { Deliver(); });
}

FaultBackend::~FaultBackend() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  deliverer_.join();  // may be on its way out of inner_->Start
  inner_.reset();     // its threads may be on their way out of Completed
}

void FaultBackend::Connect(DiskSink& sink) {
  sink_ = &sink;
  inner_->Connect(*this);
}

const Fault* FaultBackend::NextFault(DiskOp op) {
  const int64_t attempt = num_attempts_[op == DiskOp::kRead ? 0 : 1]++;
  const auto hit = std::ranges::find_if(
      plan_.faults, [&](const Fault& fault) { return Hits(fault, op, attempt); });
  return hit == plan_.faults.end() ? nullptr : &*hit;
}

void FaultBackend::Remember(int32_t id, const Attempt& attempt) {
  const auto index = static_cast<std::size_t>(id);
  if (attempts_.size() <= index) attempts_.resize(index + 1);
  attempts_[index] = attempt;
}

void FaultBackend::Start(int32_t id, const DiskRequest& request) {
  const Fault* fault = nullptr;
  {
    const std::lock_guard lock(mutex_);
    fault = NextFault(request.op);
    Remember(id, {request, fault});
  }
  if (fault == nullptr) {
    inner_->Start(id, request);
  } else if (NeverStarts(*fault)) {
    Hold(id, ToldResult(*fault, request), {});
  } else {
    inner_->Start(id, Bend(request, *fault));
  }
}

void FaultBackend::Completed(int32_t id, int64_t result) noexcept {
  Attempt attempt;
  {
    const std::lock_guard lock(mutex_);
    attempt = attempts_[static_cast<std::size_t>(id)];
  }
  if (attempt.fault != nullptr) result = Spoil(attempt.request, *attempt.fault, result);
  const bool delayed = attempt.fault != nullptr && attempt.fault->kind == FaultKind::kDelay;
  if (delayed || plan_.shuffle) {
    Hold(id, result, std::chrono::microseconds(delayed ? attempt.fault->value : 50));
  } else {
    sink_->Completed(id, result);
  }
}

void FaultBackend::Hold(int32_t id, int64_t result, Clock::duration delay) {
  {
    const std::lock_guard lock(mutex_);
    held_.push_back({id, result, Clock::now() + delay});
  }
  changed_.notify_one();
}

std::size_t FaultBackend::ChooseHeld() const {
  if (plan_.shuffle) return random_() % held_.size();
  const auto first = std::ranges::min_element(held_, {}, &Held::due);
  return static_cast<std::size_t>(first - held_.begin());
}

void FaultBackend::Deliver() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !held_.empty(); });
    if (held_.empty()) return;
    const std::size_t chosen = ChooseHeld();
    const Held held = held_[chosen];
    if (held.due > Clock::now()) {
      changed_.wait_until(lock, held.due);
      continue;  // there may be a more urgent one now
    }
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(chosen));
    lock.unlock();
    sink_->Completed(held.id, held.result);
    lock.lock();
  }
}

}  // namespace spillway
