// Worker pool: chunks are claimed from one word, waiting spins for a bounded time and then sleeps.
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <xmmintrin.h>

#include <algorithm>

namespace tw {
namespace {

// How long a helper looks for the next step, and the owner for the last chunk, before they sleep. Longer than a
// wake-up takes, short beside a scheduler's time slice, so that busy machines lose little to it.
constexpr double kHelperSpin_us = 50;
constexpr double kOwnerSpin_us = 20;

uint32_t front(uint64_t word) { return word & 0xffff; }
uint32_t back(uint64_t word) { return word >> 16 & 0xffff; }
uint32_t limit(uint64_t word) { return word >> 32 & 0xffff; }

struct WorkerStart {
  Pool *pool;
  int id;
};

void *worker_main(void *argument) {
  WorkerStart start = *static_cast<WorkerStart *>(argument);
  delete static_cast<WorkerStart *>(argument);
  start.pool->worker(start.id);
  return nullptr;
}

}  // namespace

void *thread_scratch(int64_t bytes) {
  thread_local Block block;
  if (int64_t(block.bytes()) < bytes) {
    block = Block();
    block = Block(uint64_t(bytes));
  }
  return block.data();
}

Pool &Pool::instance() {
  // Never destroyed: helpers may still sleep in it while the process exits.
  static Pool *const pool = new Pool;
  return *pool;
}

int Pool::ensure(int threads) {
  if (generation_ != fork_generation()) {
    // A forked child has no helpers, and whatever state its parent was in means nothing here.
    claim_ = 0, pending_ = 0, owner_waits_ = 0, status_ = 0;
    for (auto &word : asleep_) word = 0;
    helpers_ = 0;
    generation_ = fork_generation();
  }
  threads = std::min(threads, kMaxThreads);
  while (helpers_ < threads - 1) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    // Signals belong to the threads of the application.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    auto *start = new WorkerStart{this, helpers_ + 1};
    int error = pthread_create(&thread, &attributes, worker_main, start);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    if (error) {
      delete start;
      break;
    }
    pthread_setname_np(thread, "tilewright");
    ++helpers_;
  }
  return std::min(threads, helpers_ + 1);
}

bool Pool::claim(int id, uint32_t *chunk) {
  uint64_t word = claim_.load(std::memory_order_acquire);
  while (front(word) < back(word) && uint32_t(id) < limit(word)) {
    bool from_front = id % 2 == 0;
    uint64_t next = from_front ? word + 1 : word - (1ull << 16);
    if (claim_.compare_exchange_weak(word, next, std::memory_order_acq_rel)) {
      *chunk = from_front ? front(word) : back(word) - 1;
      return true;
    }
  }
  return false;
}

int32_t Pool::run_chunk(uint32_t chunk) {
  // Whoever holds a chunk keeps the step, hence `work_`, from changing.
  if (status_.load(std::memory_order_relaxed)) return 0;
  void *scratch = work_.scratch_bytes ? thread_scratch(work_.scratch_bytes) : nullptr;
  if (work_.scratch_bytes && !scratch) return TW_ERROR_MEMORY;
  __int128 tasks = work_.tasks;
  auto first = int64_t(tasks * chunk / work_.chunks), end = int64_t(tasks * (chunk + 1) / work_.chunks);
  return work_.kernel(work_.buffers, first, end, scratch);
}

void Pool::finish_chunk() {
  if (pending_.fetch_sub(1) == 1 && owner_waits_.load()) futex_wake(pending_, 1);
}

void Pool::worker(int id) {
  for (;;) {
    uint32_t chunk;
    uint64_t deadline = 0;
    for (;;) {
      if (claim(id, &chunk)) {
        if (_mm_getcsr() != work_.mxcsr) _mm_setcsr(work_.mxcsr);
        if (int32_t status = run_chunk(chunk)) {
          int32_t none = 0;
          status_.compare_exchange_strong(none, status);
        }
        finish_chunk();
        deadline = 0;
        continue;
      }
      uint64_t now = ticks();
      if (!deadline) deadline = now + uint64_t(kHelperSpin_us * ticks_per_us());
      if (now > deadline) break;
      __builtin_ia32_pause();
    }
    // The owner publishes, then looks for sleepers; we say that we sleep, then look for work: one sees the other.
    asleep_[id].store(1);
    uint64_t word = claim_.load();
    if (front(word) >= back(word) || uint32_t(id) >= limit(word)) futex_wait(asleep_[id], 1);
    asleep_[id].store(0, std::memory_order_relaxed);
  }
}

bool Pool::is_asleep(int threads) const {
  for (int id = 1; id < threads; ++id)
    if (!asleep_[id].load(std::memory_order_relaxed)) return false;
  return true;
}

uint64_t Pool::unshared_lately() const { return unshared_ && ticks() < unshared_until_ ? unshared_ : 0; }

void Pool::remember_unshared(uint64_t ticks_of_work) {
  unshared_ = ticks_of_work;
  unshared_until_ = ticks() + uint64_t(kHelperSpin_us * ticks_per_us());
}

void Pool::wait_for_helpers() {
  uint64_t deadline = 0;
  while (uint32_t left = pending_.load(std::memory_order_acquire)) {
    uint64_t now = ticks();
    if (!deadline) deadline = now + uint64_t(kOwnerSpin_us * ticks_per_us());
    if (now < deadline) {
      __builtin_ia32_pause();
      continue;
    }
    owner_waits_.store(1);
    left = pending_.load();
    if (left) futex_wait(pending_, left);
    owner_waits_.store(0, std::memory_order_relaxed);
  }
}

int32_t Pool::run(const Work &work, int threads, uint64_t *serial_ticks) {
  work_ = work;
  status_.store(0, std::memory_order_relaxed);
  pending_.store(work.chunks, std::memory_order_relaxed);
  claim_.store(uint64_t(threads) << 32 | uint64_t(work.chunks) << 16);
  for (int id = 1; id < threads; ++id)
    if (asleep_[id].load() && asleep_[id].exchange(0)) futex_wake(asleep_[id], 1);
  uint64_t begin = ticks();
  uint32_t chunk, mine = 0;
  while (claim(0, &chunk)) {
    if (int32_t status = run_chunk(chunk)) {
      int32_t none = 0;
      status_.compare_exchange_strong(none, status);
    }
    ++mine;
    pending_.fetch_sub(1);
  }
  if (mine) *serial_ticks = (ticks() - begin) / mine * work.chunks;
  wait_for_helpers();
  return status_.load(std::memory_order_relaxed);
}

}  // namespace tw
