// Asynchronous copies of threads, and mbarriers. Copies happen as late as they may: when they are waited for.
#include <cstring>

#include "emulator_calls.h"
#include "emulator_shadow.h"

namespace tw::emulator {
namespace {

void check_phase(Scheduler &scheduler, MBarrier &barrier) {
  if (barrier.pending || barrier.bytes) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.count;
  barrier.passed = barrier.clock;
  barrier.passed_known = barrier.known;
  barrier.clock = barrier.joined = ClockRef();
  barrier.known = nullptr;
  scheduler.wake(barrier.waiting);
}

MBarrier &find_barrier(Thread &thread, Site site, Block &block, uint64_t address) {
  check_inside(thread, site, address - reinterpret_cast<uint64_t>(thread.shared), 8);
  uint32_t offset = shared_offset(thread, address);
  MBarrier *found = block.find(offset);
  if (!found)
    thread.scheduler->fail(thread, TW_MISUSE, site,
                           "there is no initialised mbarrier at offset " + std::to_string(offset) +
                               " of shared memory of block " + std::to_string(block.id));
  if (thread.scheduler->launch.checked &&
      !thread.scheduler->has_seen(thread, found->initial_agent, found->initial_clock)) {
    uint32_t by = found->initial_agent % thread.scheduler->launch.agents.count;
    thread.scheduler->report(thread, TW_RACE, site, found->site, block.id, by,
                             "uses an mbarrier that thread " + std::to_string(by) + " initialised at {" +
                                 std::to_string(found->site) + "}: a barrier between them is missing");
  }
  return *found;
}

void arrive_as(Thread &thread, Site site, MBarrier &barrier) {
  Scheduler &scheduler = *thread.scheduler;
  if (!barrier.pending)
    scheduler.fail(thread, TW_MISUSE, site,
                   "arrives at an mbarrier that already has all " + std::to_string(barrier.count) +
                       " arrivals of its phase");
  if (scheduler.launch.checked) {
    scheduler.give(thread, barrier.clock, barrier.joined);
    if (thread.known) barrier.known = join(barrier.known, thread.known);
  }
  --barrier.pending;
  check_phase(scheduler, barrier);
}

}  // namespace

void complete_copies(Thread &thread, uint32_t groups) {
  if (thread.copy_groups < groups) return;
  uint32_t last = thread.copy_groups - groups;
  for (; thread.first_copy < thread.copies.size(); ++thread.first_copy) {
    const AsyncCopy &copy = thread.copies[thread.first_copy];
    if (copy.group > last) break;
    std::memcpy(copy.target, copy.source, copy.source_bytes);
    std::memset(copy.target + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
  }
  if (thread.first_copy == thread.copies.size()) {
    thread.copies.clear();
    thread.first_copy = 0;
  }
  if (thread.own[kOwnCopies].seen < last) thread.own[kOwnCopies].seen = last;
}

// The box is there: its bytes count, and whoever waits for the phase comes after the load.
void count_box(Scheduler &scheduler, const BoxLoad &load, int64_t bytes) {
  MBarrier &barrier = *load.block->find(load.barrier);
  barrier.bytes -= bytes;
  if (scheduler.launch.checked) {
    if (!barrier.clock) barrier.clock = scheduler.clocks.zero();
    barrier.clock.make_own();
    barrier.clock.raise(barrier.agent, load.clock);
  }
  check_phase(scheduler, barrier);
}

uint32_t claim_load(Thread &thread, Site site, Block &block, uint64_t address, uint32_t *agent) {
  MBarrier &barrier = find_barrier(thread, site, block, address);
  if (!barrier.is_fenced)
    thread.scheduler->report(thread, TW_RACE, site, barrier.site, block.id, -1,
                             "a TMA load counts on the mbarrier initialised at {" + std::to_string(barrier.site) +
                                 "}: fence_mbarrier_init after that is missing");
  barrier.is_fenced = true;
  *agent = barrier.agent;
  return ++barrier.loads;
}

void check_finished(Scheduler &scheduler, Thread &thread) {
  if (!scheduler.launch.checked) return;
  if (scheduler.launch.table.overlaps && !thread.has_waited)
    scheduler.report(thread, TW_UNFINISHED, thread.site,
                     "returns without having waited for the kernels launched before this one: the next kernel would "
                     "take them for ended");
  if (thread.first_copy < thread.copies.size())
    scheduler.report(thread, TW_UNFINISHED, thread.copies[thread.first_copy].site,
                     "an asynchronous copy has not been waited for when its thread returns");
  if (!thread.bulk_stores.empty())
    scheduler.report(thread, TW_UNFINISHED, thread.bulk_stores.front().site,
                     "a TMA store has not been committed and waited for when its thread returns");
  Warpgroup &group = thread.block->warpgroups[thread.id / kWarpgroup];
  if (group.issued != thread.own[kOwnWgmma].seen)
    scheduler.report(thread, TW_UNFINISHED, group.site,
                     "a wgmma has not been waited for when its thread returns");
  if (thread.block->live > 1) return;
  for (size_t i = 0; i < scheduler.loads.size();) {
    BoxLoad load = scheduler.loads[i];
    if (load.block != thread.block) {
      ++i;
      continue;
    }
    scheduler.loads.erase(scheduler.loads.begin() + i);
    scheduler.report(*load.issuer, TW_UNFINISHED, load.site,
                     "a TMA load to block " + std::to_string(load.block->id) +
                         " has not been waited for when the block's last thread returns");
  }
}

}  // namespace tw::emulator

using namespace tw::emulator;

extern "C" {

void twe_copy_async(Thread *thread, Site site, int32_t argument, uint64_t target, uint64_t source, uint32_t bytes,
                    uint32_t source_bytes) {
  Scheduler &scheduler = *thread->scheduler;
  uint64_t offset = target - reinterpret_cast<uint64_t>(thread->shared);
  uint32_t group = thread->copy_groups + 1;
  if (source_bytes > bytes)
    scheduler.fail(*thread, TW_MISUSE, site,
                   "copies " + std::to_string(source_bytes) + " B to a place of " + std::to_string(bytes) + " B");
  if (scheduler.launch.checked) {
    check_inside(*thread, site, offset, bytes);
    check_alignment(*thread, site, offset, bytes, "the target of an asynchronous copy");
    if (source_bytes) {
      check_alignment(*thread, site, source, bytes, "the source of an asynchronous copy");
      check_global(*thread, actor_of(*thread), site, argument, source, source_bytes, nullptr);
    }
    Actor actor{thread->own[kOwnCopies].agent, group, false, false};
    check_shared(*thread, actor, site, *thread->block, offset, bytes, true);
  }
  AsyncCopy copy{reinterpret_cast<char *>(target), reinterpret_cast<const char *>(source), bytes, source_bytes, group,
                 site};
  if (scheduler.completes_early()) {
    std::memcpy(copy.target, copy.source, source_bytes);
    std::memset(copy.target + source_bytes, 0, bytes - source_bytes);
  }
  thread->copies.push_back(copy);
}

void twe_copy_commit(Thread *thread, Site) { ++thread->copy_groups; }

void twe_copy_wait(Thread *thread, Site, uint32_t groups) { complete_copies(*thread, groups); }

void twe_mbarrier_init(Thread *thread, Site site, uint64_t address, uint32_t count) {
  Scheduler &scheduler = *thread->scheduler;
  Block &block = *thread->block;
  uint64_t offset = address - reinterpret_cast<uint64_t>(thread->shared);
  check_inside(*thread, site, offset, 8);
  check_alignment(*thread, site, offset, 8, "an mbarrier");
  if (count == 0) scheduler.fail(*thread, TW_MISUSE, site, "an mbarrier needs a count of at least 1");
  MBarrier *barrier = block.find(uint32_t(offset));
  if (barrier && !barrier->waiting.empty())
    scheduler.fail(*thread, TW_MISUSE, site, "initialises an mbarrier that threads wait at");
  if (!barrier) {
    if (block.mbarriers.size() == kMostMBarriers)
      scheduler.fail(*thread, TW_MISUSE, site,
                     "the emulator keeps at most " + std::to_string(kMostMBarriers) + " mbarriers per block");
    block.mbarriers.emplace_back();
    barrier = &block.mbarriers.back();
    barrier->agent = block.rank * scheduler.launch.agents.count +
                     scheduler.launch.agents.mbarrier(uint32_t(block.mbarriers.size() - 1));
  }
  barrier->offset = uint32_t(offset);
  barrier->count = barrier->pending = count;
  barrier->phase = 0;
  barrier->bytes = 0;
  barrier->is_fenced = false;
  barrier->site = site;
  barrier->clock = barrier->joined = barrier->passed = ClockRef();
  barrier->known = barrier->passed_known = nullptr;
  barrier->initial_agent = thread->own[kOwnThread].agent;
  barrier->initial_clock = thread->own[kOwnThread].seen;
  if (scheduler.launch.checked) check_shared(*thread, actor_of(*thread), site, block, offset, 8, true);
}

void twe_mbarrier_expect_tx(Thread *thread, Site site, uint64_t address, uint32_t bytes) {
  MBarrier &barrier = find_barrier(*thread, site, *thread->block, address);
  barrier.bytes += bytes;
  arrive_as(*thread, site, barrier);
}

void twe_mbarrier_arrive(Thread *thread, Site site, uint64_t address) {
  arrive_as(*thread, site, find_barrier(*thread, site, *thread->block, address));
}

void twe_mbarrier_arrive_cluster(Thread *thread, Site site, uint64_t address, uint32_t block_rank) {
  Cluster &cluster = *thread->block->cluster;
  if (block_rank >= cluster.blocks.size())
    thread->scheduler->fail(*thread, TW_OUT_OF_BOUNDS, site,
                            "block rank " + std::to_string(block_rank) + " of a cluster of " +
                                std::to_string(cluster.blocks.size()));
  Block &block = *cluster.blocks[block_rank];
  if (!block.live)
    thread->scheduler->fail(*thread, TW_MISUSE, site,
                            "block " + std::to_string(block.id) +
                                ", whose shared memory this accesses, has already returned");
  arrive_as(*thread, site, find_barrier(*thread, site, block, address));
}

void twe_mbarrier_wait(Thread *thread, Site site, uint64_t address, uint32_t parity) {
  MBarrier &barrier = find_barrier(*thread, site, *thread->block, address);
  while (barrier.phase == (parity & 1)) thread->scheduler->wait(*thread, site, "an mbarrier", barrier.waiting);
  if (!thread->scheduler->launch.checked) return;
  thread->scheduler->take(*thread, barrier.passed);
  if (barrier.passed_known) thread->known = join(thread->known, barrier.passed_known);
}

void twe_fence_mbarrier_init(Thread *thread, Site) {
  for (MBarrier &barrier : thread->block->mbarriers)
    if (barrier.initial_agent == thread->own[kOwnThread].agent) barrier.is_fenced = true;
}

void twe_fence_async(Thread *thread, Site site) {
  twe_fence_mbarrier_init(thread, site);
  thread->scheduler->fence_proxy(*thread);
}
}
