// Kernel calls: checked accesses, barriers, shuffles, and global memory that blocks share.
#include "emulator_calls.h"

#include <algorithm>
#include <cstring>

#include "emulator_shadow.h"

using namespace tw::emulator;

namespace tw::emulator {
namespace {

// What the thread makes visible to whoever reads its release: its own cluster's clock, and what it knows of others.
KnownRef all_known(Thread &thread) {
  auto own = std::make_shared<Known>();
  (*own)[thread.block->cluster->number] = thread.scheduler->snapshot(thread);
  return join(thread.known, own);
}

void learn(Thread &thread, const KnownRef &known) {
  if (!known) return;
  auto own = known->find(thread.block->cluster->number);
  if (own != known->end()) thread.scheduler->take(thread, own->second);
  thread.known = join(thread.known, known);
}

// A read-modify-write, relaxed or not: adds to what the place releases and observes what it has.
void synchronise_at(Thread &thread, uint64_t address, bool acquires, bool releases, bool reads, bool writes) {
  Scheduler &scheduler = *thread.scheduler;
  scheduler.progress();
  if (!scheduler.launch.checked) return;
  KnownRef &place = scheduler.released[address];
  KnownRef before = place;
  if (writes) place = join(place, releases ? all_known(thread) : thread.released);
  if (!reads) return;
  if (acquires)
    learn(thread, before);
  else
    thread.observed = join(thread.observed, before);
}

void check_flag(Thread &thread, Site site, int32_t argument, uint64_t address, bool is_write) {
  check_alignment(thread, site, address, 4, "the address");
  if (!thread.scheduler->launch.checked) return;
  Actor actor = actor_of(thread);
  // Atomic accesses race with ordinary ones only, whatever they write.
  int32_t zero = 0;
  check_global(thread, actor, site, argument, address, 4, is_write ? &zero : nullptr);
}

}  // namespace
}  // namespace tw::emulator

extern "C" {

void twe_index(Thread *thread, Site site, int32_t dimension, int64_t index, int64_t lanes, int64_t extent) {
  if (index >= 0 && index <= extent - lanes) return;
  std::string what = lanes == 1 ? "index " + std::to_string(index)
                                : "indices " + std::to_string(index) + " to " + std::to_string(index + lanes - 1);
  thread->scheduler->fail(*thread, TW_OUT_OF_BOUNDS, site,
                          what + " in dimension " + std::to_string(dimension) + " of extent " +
                              std::to_string(extent));
}

void twe_load_shared(Thread *thread, Site site, uint64_t address, uint32_t bytes, uint32_t alignment) {
  if (!thread->scheduler->launch.checked) return;
  thread->scheduler->count_access(*thread, site);
  uint64_t offset = address - reinterpret_cast<uint64_t>(thread->shared);
  check_inside(*thread, site, offset, bytes);
  check_alignment(*thread, site, offset, alignment, "the address");
  check_shared(*thread, actor_of(*thread), site, *thread->block, offset, bytes, false);
}

void twe_store_shared(Thread *thread, Site site, uint64_t address, uint32_t bytes, uint32_t alignment) {
  if (!thread->scheduler->launch.checked) return;
  uint64_t offset = address - reinterpret_cast<uint64_t>(thread->shared);
  check_inside(*thread, site, offset, bytes);
  check_alignment(*thread, site, offset, alignment, "the address");
  check_shared(*thread, actor_of(*thread), site, *thread->block, offset, bytes, true);
}

void twe_load_global(Thread *thread, Site site, int32_t argument, uint64_t address, uint32_t bytes,
                     uint32_t alignment) {
  if (!thread->scheduler->launch.checked) return;
  thread->scheduler->count_access(*thread, site);
  check_alignment(*thread, site, address, alignment, "the address");
  check_global(*thread, actor_of(*thread), site, argument, address, bytes, nullptr);
}

void twe_store_global(Thread *thread, Site site, int32_t argument, uint64_t address, uint32_t bytes,
                      uint32_t alignment, const void *value) {
  if (thread->scheduler->launch.checked) {
    check_alignment(*thread, site, address, alignment, "the address");
    check_global(*thread, actor_of(*thread), site, argument, address, bytes, value);
  }
  std::memcpy(reinterpret_cast<void *>(address), value, bytes);
}

void twe_atomic_shared(Thread *thread, Site site, uint64_t address, uint32_t bytes) {
  twe_load_shared(thread, site, address, bytes, bytes);
  twe_store_shared(thread, site, address, bytes, bytes);
}

void twe_atomic_global(Thread *thread, Site site, int32_t argument, uint64_t address, uint32_t bytes) {
  if (!thread->scheduler->launch.checked) return;
  check_alignment(*thread, site, address, bytes, "the address");
  const uint64_t nothing = 0;
  check_global(*thread, actor_of(*thread), site, argument, address, bytes, nullptr);
  check_global(*thread, actor_of(*thread), site, argument, address, bytes, &nothing);
  synchronise_at(*thread, address, false, false, true, true);
}

void twe_barrier(Thread *thread, Site site) {
  Block &block = *thread->block;
  WarpArrival &warp = block.arrivals[thread->warp()];
  if (warp.lanes && warp.site != site)
    thread->scheduler->fail(*thread, TW_DIVERGENCE, site,
                            "other lanes of the same warp wait at the barrier {" + std::to_string(warp.site) +
                                "}; all lanes of a warp must come to the same one");
  warp.site = site;
  uint32_t lanes = std::min<uint32_t>(kWarp, uint32_t(block.threads.size()) - thread->warp() * kWarp);
  if (++warp.lanes == lanes) warp.lanes = 0;
  thread->scheduler->synchronise(*thread, site, block.barrier, uint32_t(block.threads.size()), "the block's barrier");
}

static Meeting &named_barrier(Thread &thread, Site site, uint32_t id, uint32_t threads) {
  if (id == 0 || id >= kNamedBarriers || threads % kWarp || threads > thread.block->threads.size())
    thread.scheduler->fail(thread, TW_MISUSE, site,
                           "named barrier " + std::to_string(id) + " of " + std::to_string(threads) +
                               " threads; expected 1 to 15 and a multiple of 32 within the block");
  return thread.block->named[id];
}

void twe_named_barrier(Thread *thread, Site site, uint32_t id, uint32_t threads) {
  Meeting &meeting = named_barrier(*thread, site, id, threads);
  thread->scheduler->synchronise(*thread, site, meeting, threads, "a named barrier");
}

void twe_named_barrier_arrive(Thread *thread, Site site, uint32_t id, uint32_t threads) {
  Meeting &meeting = named_barrier(*thread, site, id, threads);
  thread->scheduler->synchronise(*thread, site, meeting, threads, "a named barrier", false);
}

void twe_cluster_sync(Thread *thread, Site site) {
  Cluster &cluster = *thread->block->cluster;
  uint32_t threads = uint32_t(cluster.blocks.size() * thread->block->threads.size());
  thread->scheduler->synchronise(*thread, site, cluster.meeting, threads, "the cluster's barrier");
}

uint32_t twe_cluster_rank(Thread *thread) { return thread->block->rank; }

uint64_t twe_shuffle(Thread *thread, Site site, uint32_t value, uint32_t mode, uint32_t offset, uint32_t width) {
  struct Slot {
    uint32_t value, mode, offset, width;
    uint64_t result;
  } slot{value, mode, offset, width, 0};
  thread->scheduler->meet(
      *thread, site, thread->block->warps[thread->warp()], thread->lane(), kWarp, &slot, "a shuffle",
      [](void **slots) {
        for (uint32_t lane = 0; lane < kWarp; ++lane) {
          Slot &mine = *static_cast<Slot *>(slots[lane]);
          uint32_t first = lane / mine.width * mine.width;
          int64_t source = lane;
          switch (mine.mode) {
            case 0: source = lane ^ mine.offset; break;
            case 1: source = int64_t(lane) - mine.offset; break;
            case 2: source = int64_t(lane) + mine.offset; break;
            default: source = first + int64_t(mine.offset); break;
          }
          bool is_valid = source >= first && source < first + mine.width;
          mine.result = static_cast<Slot *>(slots[is_valid ? source : lane])->value | uint64_t(is_valid) << 32;
        }
      });
  return slot.result;
}

void twe_grid_dependency_wait(Thread *thread, Site) { thread->has_waited = true; }

void twe_thread_fence(Thread *thread, Site) {
  if (!thread->scheduler->launch.checked) return;
  learn(*thread, thread->observed);
  thread->observed = nullptr;
  thread->released = all_known(*thread);
}

void twe_nanosleep(Thread *thread, Site site) { thread->scheduler->poll(*thread, site, "others, asleep"); }

int32_t twe_load_acquire(Thread *thread, Site site, int32_t argument, uint64_t address) {
  check_flag(*thread, site, argument, address, false);
  int32_t value = __atomic_load_n(reinterpret_cast<int32_t *>(address), __ATOMIC_ACQUIRE);
  if (thread->scheduler->launch.checked) {
    auto &places = thread->scheduler->released;
    auto found = places.find(address);
    if (found != places.end()) learn(*thread, found->second);
  }
  thread->scheduler->poll(*thread, site, "a value to change in global memory");
  return value;
}

void twe_store_release(Thread *thread, Site site, int32_t argument, uint64_t address, int32_t value) {
  check_flag(*thread, site, argument, address, true);
  synchronise_at(*thread, address, false, true, false, true);
  __atomic_store_n(reinterpret_cast<int32_t *>(address), value, __ATOMIC_RELEASE);
}

int32_t twe_atomic_add(Thread *thread, Site site, int32_t argument, uint64_t address, int32_t value, int32_t acq_rel) {
  check_flag(*thread, site, argument, address, false);
  check_flag(*thread, site, argument, address, true);
  synchronise_at(*thread, address, acq_rel, acq_rel, true, true);
  return __atomic_fetch_add(reinterpret_cast<int32_t *>(address), value, __ATOMIC_ACQ_REL);
}
}
