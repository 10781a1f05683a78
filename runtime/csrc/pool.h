// The process-wide worker pool: the caller is worker 0, the others help with the steps it publishes.
#pragma once
#include <atomic>
#include <cstdint>

#include "abi.h"
#include "futex.h"
#include "memory.h"

namespace tw {

constexpr int kMaxThreads = 1024;

// What workers need to know about the step in progress.
struct Work {
  tw_kernel_fn kernel;
  void *const *buffers;
  int64_t tasks;
  int64_t scratch_bytes;
  uint32_t chunks;
  uint32_t mxcsr;
};

// Scratch of the calling thread, grown to at least `bytes`; nullptr when memory is exhausted.
void *thread_scratch(int64_t bytes);

class Pool {
 public:
  static Pool &instance();

  // Taken by the one run that may publish work; others go single-threaded.
  ForkSafeLock owner;

  // Makes at least `threads - 1` helpers exist; returns how many threads a run can use (fewer when the system
  // refuses threads). Call with `owner` held.
  int ensure(int threads);

  // Runs the chunks of `work` on up to `threads` threads and returns the first failing status, or 0. The
  // caller's share of the work is timed: `*serial_ticks` estimates what one thread would need for all of it.
  int32_t run(const Work &work, int threads, uint64_t *serial_ticks);

  // True when all helpers of a run on `threads` threads sleep, so that publishing work costs system calls.
  bool is_asleep(int threads) const;

  // Ticks of work that runs kept to their callers while helpers slept, if the last of them ended so lately that a woken
  // helper would still look for work; and what a run adds to it. Call with `owner` held.
  uint64_t unshared_lately() const;
  void remember_unshared(uint64_t ticks_of_work);

  void worker(int id);

 private:
  bool claim(int id, uint32_t *chunk);
  int32_t run_chunk(uint32_t chunk);
  void finish_chunk();
  void wait_for_helpers();

  // Chunks left and who may take them: limit << 32 | back << 16 | front. Even threads take from the front, odd
  // ones from the back, so that neighbouring tasks of successive steps tend to meet the same cache.
  alignas(64) std::atomic<uint64_t> claim_{0};
  alignas(64) std::atomic<uint32_t> pending_{0};
  std::atomic<uint32_t> owner_waits_{0};
  // 1 while helper number i sleeps on this word.
  alignas(64) std::atomic<uint32_t> asleep_[kMaxThreads] = {};
  alignas(64) Work work_{};
  std::atomic<int32_t> status_{0};
  int helpers_ = 0;
  uint32_t generation_ = 0;
  uint64_t unshared_ = 0, unshared_until_ = 0;
};

}  // namespace tw
