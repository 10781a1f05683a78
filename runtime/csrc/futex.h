// Waiting and locking on 32-bit words, with locks that a forked child finds free.
#pragma once
#include <atomic>
#include <cstdint>

namespace tw {

// Blocks while `word` holds `expected`, until woken; may return early.
void futex_wait(std::atomic<uint32_t> &word, uint32_t expected);
void futex_wake(std::atomic<uint32_t> &word, int count);

// Counts the forks between the first process and this one, starting at 1.
uint32_t fork_generation();

inline uint64_t ticks() { return __builtin_ia32_rdtsc(); }

// Time-stamp ticks per microsecond, measured against the system clock.
double ticks_per_us();

// A mutex whose word names the process generation that holds it: a lock held by another thread of the parent
// at the moment of a fork counts as free in the child, where that thread does not exist.
class ForkSafeLock {
 public:
  bool try_lock();
  void lock();
  void unlock();

 private:
  std::atomic<uint32_t> holder_{0}, waiters_{0};
};

}  // namespace tw
