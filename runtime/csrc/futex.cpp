// Futex words, the fork counter and the clock.
#include "futex.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace tw {
namespace {

std::atomic<uint32_t> generation{1};

struct Clock {
  timespec start_time;
  uint64_t start_ticks;
  Clock() {
    clock_gettime(CLOCK_MONOTONIC, &start_time);
    start_ticks = ticks();
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  }
} const process_clock;

long call_futex(std::atomic<uint32_t> &word, int operation, uint32_t value) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), operation | FUTEX_PRIVATE_FLAG, value, nullptr,
                 nullptr, 0);
}

}  // namespace

void futex_wait(std::atomic<uint32_t> &word, uint32_t expected) { call_futex(word, FUTEX_WAIT, expected); }
void futex_wake(std::atomic<uint32_t> &word, int count) { call_futex(word, FUTEX_WAKE, uint32_t(count)); }
uint32_t fork_generation() { return generation.load(std::memory_order_relaxed); }

double ticks_per_us() {
  static std::atomic<double> cached{0};
  double known = cached.load(std::memory_order_relaxed);
  if (known > 0) return known;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  double us = double(now.tv_sec - process_clock.start_time.tv_sec) * 1e6 +
              double(now.tv_nsec - process_clock.start_time.tv_nsec) * 1e-3;
  if (us < 1000) return 2500;  // too soon to measure: any common clock is within a factor of two of this
  known = double(ticks() - process_clock.start_ticks) / us;
  cached.store(known, std::memory_order_relaxed);
  return known;
}

bool ForkSafeLock::try_lock() {
  uint32_t seen = holder_.load(std::memory_order_relaxed), mine = fork_generation();
  return seen != mine && holder_.compare_exchange_strong(seen, mine, std::memory_order_acquire);
}

void ForkSafeLock::lock() {
  for (int spin = 0; spin < 100; ++spin) {
    if (try_lock()) return;
    __builtin_ia32_pause();
  }
  waiters_.fetch_add(1);
  while (!try_lock()) futex_wait(holder_, fork_generation());
  waiters_.fetch_sub(1);
}

void ForkSafeLock::unlock() {
  holder_.store(0, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst)) futex_wake(holder_, 1);
}

}  // namespace tw
