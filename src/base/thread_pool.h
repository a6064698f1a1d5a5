// ThreadPool: compute threads pinned to distinct physical cores; the caller is worker 0 and is not
// pinned, since threads it starts would inherit the pin. Workers spin for tens of microseconds
// between runs, then sleep. Thread rule: Run is called by one thread at a time, never from inside a
// task.
#pragma once

#include <cstdint>
#include <memory>

namespace spillway {

// A reference to a callable, the size of two pointers; nothing is allocated. The callable must
// outlive the call.
class TaskRef {
 public:
  template <typename F>
  TaskRef(F& f)  // NOLINT: implicit on purpose, `pool.Run(n, task)`
      : object_(&f), call_([](void* object, int64_t task, int worker) {
          (*static_cast<F*>(object))(task, worker);
        }) {}
  void operator()(int64_t task, int worker) const { call_(object_, task, worker); }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int);
};

class ThreadPool {
 public:
  // Throws: Error kSystemLimit when the system refuses a thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls task(i, worker) once for each i in [0, num_tasks), on any worker, and returns when all
  // are done. Worker w begins with the w-th part of them, in rising order, and then helps the
  // others: what neighbouring tasks read is best neighbouring memory, and results must not depend
  // on who computes what. Throws: what the first failing task threw; tasks that had not begun by
  // then are left out.
  void Run(int64_t num_tasks, TaskRef task);

  // The task that this one's worker likely goes on with, to fetch ahead for; -1: none. Requires: a
  // call from inside the task.
  int64_t NextTask(int64_t task) const;

  // Changes the pulse: for tasks that take long, from inside of them.
  void Tick();

  // A number that changes while tasks are begun, and with every Tick. Any thread, also beside Run.
  uint64_t Pulse() const;

 private:
  struct State;
  void Stop();
  std::unique_ptr<State> state_;
};

// Physical cores this process may run on (affinity mask and cgroup quota obeyed), at least 1.
int NumPhysicalCores();

}  // namespace spillway
