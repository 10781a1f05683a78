// The emulator of GPU kernels: threads, blocks and clusters of one launch, and who may run when.
//
// A launch is cut into units of blocks that must run together (a cluster, or the whole grid of a cooperative kernel);
// one Scheduler runs one unit at a time on one OS thread, and every GPU thread of it is a fiber that leaves the CPU
// only where it waits. Kernels call the functions `twe_*`, whose first argument is the calling Thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator_abi.h"
#include "emulator_clock.h"
#include "emulator_fiber.h"

namespace tw::emulator {

using Site = uint32_t;  // number of a source operation of the kernel
constexpr Site kNoSite = 0x7fff;
constexpr uint32_t kNoAgent = ~0u;
constexpr uint32_t kWarp = 32, kWarpgroup = 128;
constexpr uint32_t kNamedBarriers = 16, kMostMBarriers = 128, kMostBulkThreads = 64;

struct Block;
struct Thread;
class Scheduler;
class SharedShadow;
class GlobalShadow;

using Kernel = void (*)(void **context);

// Numbers of the agents of one block: threads, their copies, warpgroups, mbarriers, threads with bulk stores.
struct Agents {
  uint32_t threads, warpgroups, count;
  explicit Agents(uint32_t block_threads)
      : threads(block_threads),
        warpgroups((block_threads + kWarpgroup - 1) / kWarpgroup),
        count(2 * threads + warpgroups + kMostMBarriers + kMostBulkThreads) {}
  uint32_t copies_of(uint32_t thread) const { return threads + thread; }
  uint32_t warpgroup(uint32_t number) const { return 2 * threads + number; }
  uint32_t mbarrier(uint32_t number) const { return 2 * threads + warpgroups + number; }
  uint32_t bulk(uint32_t number) const { return 2 * threads + warpgroups + kMostMBarriers + number; }
  // Ordinary accesses, which need a proxy fence before asynchronous ones.
  bool is_generic(uint32_t agent) const { return agent % count < 2 * threads; }
};

// One launch, shared by all schedulers.
struct Launch {
  const tw_emulation &table;
  Kernel kernel;
  Agents agents;
  bool checked;
  uint32_t entries;  // of a clock's first half
  std::unique_ptr<GlobalShadow> global;
  std::atomic<bool> stopped{false};
  std::vector<int64_t> units;  // in the order they start
  std::atomic<size_t> next_unit{0};

  Launch(const tw_emulation &table, Kernel kernel);
  ~Launch();
  bool is_atomic(Site site) const { return site < uint64_t(table.site_count) && table.site_atomic[site]; }
  const tw_emulated_map *map(const void *address) const;
  // Keeps a finding unless one of the same kind was made between the same operations; true when it is new.
  bool add(const tw_finding &finding);

 private:
  std::mutex lock_;
  int64_t found_ = 0;
};

// What a thread has itself done as one of its agents, not yet in the clock it shares with others.
struct Own {
  uint32_t agent = kNoAgent;
  uint32_t seen = 0;    // accesses up to this number are ordered before what the thread does next
  uint32_t fenced = 0;  // and before its asynchronous accesses
};
enum OwnKind { kOwnThread, kOwnCopies, kOwnWgmma, kOwnBulk, kOwnCount };

// A copy from global to shared memory of one thread, not yet carried out.
struct AsyncCopy {
  char *target;
  const char *source;
  uint32_t bytes, source_bytes, group;
  Site site;
};

// A box on its way from shared memory to a tensor.
struct BulkStore {
  const tw_emulated_map *map;
  int32_t coordinates[5];
  uint32_t source, group;
  Site site;
};

struct Thread {
  // The kernel reads these four words as its `void **args`.
  int64_t id = 0;
  int64_t block_id = 0;
  char *shared = nullptr;
  void *const *parameters = nullptr;

  Block *block = nullptr;
  Scheduler *scheduler = nullptr;
  void *fiber = nullptr;  // nullptr before it first runs
  char *stack = nullptr;
  bool done = false;
  bool has_waited = false;  // for the kernels launched before this one
  Site site = kNoSite;            // where it waits, or what it last asked for
  const char *waits_for = nullptr;

  std::vector<AsyncCopy> copies;
  size_t first_copy = 0;
  uint32_t copy_groups = 0;  // committed
  std::vector<BulkStore> bulk_stores;
  uint32_t bulk_groups = 0;

  ClockRef seen;
  Own own[kOwnCount];
  KnownRef known;     // of other clusters
  KnownRef released;  // what the last thread_fence made visible to who reads what this thread then writes
  KnownRef observed;  // what relaxed reads have met, seen after the next thread_fence

  uint32_t lane() const { return uint32_t(id) % kWarp; }
  uint32_t warp() const { return uint32_t(id) / kWarp; }
  inline uint32_t agent_base() const;
};

// Where threads meet: a block's barrier, a named barrier, a cluster's, or the lanes of a warp or warpgroup.
struct Meeting {
  uint32_t arrived = 0;
  Site site = kNoSite;
  std::vector<Thread *> waiting;
  void *slots[kWarpgroup] = {};
  // What whoever passes has seen; `joined` is the last clock that went into it.
  ClockRef clock, joined;
  KnownRef known, released;

  void reset();
};

struct MBarrier {
  uint32_t offset, count, pending, phase = 0;
  int64_t bytes = 0;
  uint32_t agent, loads = 0;
  uint32_t initial_agent, initial_clock;
  bool is_fenced = false;  // its initialisation is visible to the cluster and to asynchronous copies
  Site site;
  std::vector<Thread *> waiting;
  ClockRef clock, joined, passed;  // of the phase in progress, as in Meeting; of the phase before
  KnownRef known, passed_known;
};

// A group of wgmmas of one warpgroup: inputs are read when it is carried out, which is when it is waited for.
struct WgmmaGroup;
struct Warpgroup {
  Warpgroup();
  ~Warpgroup();
  Warpgroup(Warpgroup &&) noexcept;
  void reset();
  Meeting meeting;
  uint32_t issued = 0, computed = 0;
  Site site = kNoSite;  // of the last one
  std::deque<std::unique_ptr<WgmmaGroup>> groups;  // the last ones, by number
};

// One thread of a warp came to the block's barrier: the others must come to the same operation.
struct WarpArrival {
  Site site = kNoSite;
  uint32_t lanes = 0;
};

struct Cluster {
  int64_t number = 0;
  std::vector<Block *> blocks;
  Meeting meeting;
};

struct Block {
  int64_t id = 0;
  uint32_t rank = 0;
  Cluster *cluster = nullptr;
  uint32_t live = 0;
  char *shared = nullptr;
  size_t shared_mapped = 0;
  std::unique_ptr<SharedShadow> shadow;
  std::vector<Thread> threads;
  Meeting barrier, named[kNamedBarriers];
  std::vector<Meeting> warps;
  std::vector<WarpArrival> arrivals;
  std::vector<Warpgroup> warpgroups;
  std::deque<MBarrier> mbarriers;  // a deque: references stay valid
  uint32_t bulk_threads = 0;

  explicit Block(const Launch &launch);
  ~Block();
  void start(const Launch &launch, int64_t block_id, uint32_t cluster_rank, Cluster *of, Scheduler *scheduler);
  MBarrier *find(uint32_t offset);
};

inline uint32_t Thread::agent_base() const { return own[kOwnThread].agent - uint32_t(id); }

// A box on its way into a block's shared memory.
struct BoxLoad {
  Block *block;
  const tw_emulated_map *map;
  int32_t coordinates[5];
  uint32_t target, barrier, clock;
  Site site;
  Thread *issuer;
};

class Random {
 public:
  void seed(uint64_t value) { state_ = value * 0x9E3779B97F4A7C15ull | 1; }
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  uint64_t below(uint64_t bound) { return (next() >> 11) % bound; }

 private:
  uint64_t state_ = 1;
};

class Scheduler {
 public:
  explicit Scheduler(Launch &launch);
  ~Scheduler();

  // Runs units of the launch until none is left or the launch has stopped.
  void run();

  Launch &launch;
  ClockPool clocks;
  std::vector<BoxLoad> loads;  // on their way
  // What was released at addresses of global memory that threads of different clusters synchronise through.
  std::unordered_map<uint64_t, KnownRef> released;

  // Leaves the running fiber until another one wakes it.
  void wait(Thread &thread, Site site, const char *what, std::vector<Thread *> &list);
  void wake(std::vector<Thread *> &list);
  // Lets others run; reports a standstill when all of them have only done that for long.
  void poll(Thread &thread, Site site, const char *what);
  void progress() { polls_ = 0; }
  // Ends a thread that never waits and never returns.
  void count_access(Thread &thread, Site site);
  // Reports what is wrong and, when the kernel cannot go on, ends the launch.
  void report(const Thread &thread, tw_finding_kind kind, Site site, const std::string &text);
  void report(const Thread &thread, tw_finding_kind kind, Site site, Site other, int64_t other_block,
              int64_t other_thread, const std::string &text);
  [[noreturn]] void fail(const Thread &thread, tw_finding_kind kind, Site site, const std::string &text);

  // True with probability 1/4 where the seed asks for variety: asynchronous work that completes early.
  bool completes_early() { return seed_ && random_.below(4) == 0; }
  uint64_t choose(uint64_t count) { return seed_ ? random_.below(count) : 0; }

  // Vector clocks, for checked launches.
  bool has_seen(const Thread &thread, uint32_t agent, uint32_t clock) const;
  bool has_seen_fenced(const Thread &thread, uint32_t agent, uint32_t clock) const;
  void give(Thread &thread, ClockRef &clock, ClockRef &joined);  // the thread's past goes into `clock`
  void take(Thread &thread, const ClockRef &clock);              // `clock`'s past precedes the thread
  ClockRef snapshot(Thread &thread);
  void fence_proxy(Thread &thread);

  // `count` threads meet; `slot` is the caller's contribution, and the last one to come calls `leader(slots)`.
  template <class Leader>
  void meet(Thread &thread, Site site, Meeting &meeting, uint32_t number, uint32_t count, void *slot,
            const char *what, Leader leader);
  // As a barrier, which orders the memory accesses of all who meet.
  void synchronise(Thread &thread, Site site, Meeting &meeting, uint32_t count, const char *what, bool waits = true);

 private:
  static void fiber_main();
  void run_unit(int64_t unit, int64_t first_block, int64_t blocks);
  Thread *next_ready();
  void switch_to(Thread *thread, void **save);
  void resume();
  void finish(Thread &thread);
  bool deliver_one();
  void report_standstill();
  void pass(Meeting &meeting, Thread *last);

  static thread_local Scheduler *active_;
  uint64_t seed_;
  Random random_;
  StackPool stacks_;
  std::deque<Thread *> ready_;
  Thread *current_ = nullptr;
  void *main_ = nullptr;
  char *abandoned_ = nullptr;  // a stack that the fiber before was still standing on
  int64_t live_ = 0;
  uint64_t polls_ = 0, accesses_ = 0;
  bool is_stopped_ = false;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  ClockRef fenced_from_, fenced_to_, taken_from_, taken_what_, taken_to_;  // the last results, often wanted again
};

template <class Leader>
void Scheduler::meet(Thread &thread, Site site, Meeting &meeting, uint32_t number, uint32_t count, void *slot,
                     const char *what, Leader leader) {
  if (meeting.arrived && meeting.site != site)
    fail(thread, TW_DIVERGENCE, site,
         "lanes of one warp must come to " + std::string(what) + " together; another one waits at {" +
             std::to_string(meeting.site) + "}");
  meeting.site = site;
  meeting.slots[number] = slot;
  if (++meeting.arrived < count) return wait(thread, site, what, meeting.waiting);
  meeting.arrived = 0;
  leader(meeting.slots);
  wake(meeting.waiting);
}

// Places of shared memory.
inline uint32_t shared_offset(const Thread &thread, uint64_t address) {
  return uint32_t(address - reinterpret_cast<uint64_t>(thread.shared));
}

// TMA and wgmma address shared memory through this exclusive or; `span` is 0, 32, 64 or 128 bytes.
inline uint32_t swizzled(uint32_t offset, uint32_t span) { return offset ^ ((offset >> 3) & (span ? span - 16 : 0)); }

// How accesses are checked (emulator_shadow.cpp). All are no-ops in unchecked launches.
struct Actor {
  uint32_t agent, clock;
  bool is_async;   // ordinary accesses before it need a proxy fence
  bool is_common;  // many threads do it together: only what their common clock holds is before it
};
Actor actor_of(const Thread &thread);
void check_shared(Thread &thread, const Actor &actor, Site site, Block &block, uint64_t offset, uint32_t bytes,
                  bool is_write);
// Argument number of the access, or -1 where the compiler does not know it; `value` is what will be written.
void check_global(Thread &thread, const Actor &actor, Site site, int32_t argument, uint64_t address, uint32_t bytes,
                  const void *value);
// That a kernel which overlaps the one before it has waited for that before it touches global memory.
void check_waited(Thread &thread, Site site);
void check_alignment(Thread &thread, Site site, uint64_t address, uint32_t alignment, const char *what);
void check_inside(Thread &thread, Site site, uint64_t offset, uint64_t bytes);

// Asynchronous work (emulator_async.cpp, emulator_tma.cpp).
void complete_copies(Thread &thread, uint32_t groups);
void complete_bulk(Thread &thread, uint32_t groups, bool only_reads);
void deliver(Scheduler &scheduler, const BoxLoad &load);
void arrive(Scheduler &scheduler, MBarrier &barrier);
void check_finished(Scheduler &scheduler, Thread &thread);

}  // namespace tw::emulator
