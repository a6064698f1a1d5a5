#include "src/report/trace_log.h"

#include <chrono>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/io_thread.h"

namespace spillway {
namespace {

// 1.4 MiB; with the writer's pause enough for a million events a second.
constexpr std::size_t kRingEvents = 16384;
constexpr std::chrono::milliseconds kPause(10);

}  // namespace

TraceLog::TraceLog(const ReportFile& file, const Plan& plan)
    : file_(file), trace_(file.Create(), file.Named(), plan, NowSeconds()), ring_(kRingEvents) {
  try {
    writer_ = StartIoThread([this] { Run(); });
  } catch (...) {
    file_.Discard();
    throw;
  }
}

TraceLog::~TraceLog() {
  if (finished_) return;
  try {
    Finish();
  } catch (const std::exception&) {  // what ended the run is told instead
  }
}

void TraceLog::Finish() {
  finished_ = true;
  Stop();
  try {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    trace_.End(ring_.num_dropped());
    file_.Commit(trace_.file());
  } catch (...) {
    file_.Discard();
    throw;
  }
}

void TraceLog::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  writer_.join();
}

void TraceLog::Run() noexcept {
  try {
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, kPause, [this] { return stop_; })) {
      lock.unlock();
      Drain();
      lock.lock();
    }
    Drain();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void TraceLog::Drain() {
  while (const std::optional<TraceEvent> event = ring_.Pop()) trace_.Write(*event);
}

}  // namespace spillway
