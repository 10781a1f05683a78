// Boxes of tensors between global and shared memory, as tensor maps describe them.
#include <algorithm>
#include <cstring>

#include "emulator_calls.h"
#include "emulator_shadow.h"

namespace tw::emulator {

void count_box(Scheduler &scheduler, const BoxLoad &load, int64_t bytes);
uint32_t claim_load(Thread &thread, Site site, Block &block, uint64_t address, uint32_t *agent);

namespace {

constexpr uint32_t kBoxAlignment = 128;

int64_t box_bytes(const tw_emulated_map &map) {
  int64_t bytes = map.element_bytes;
  for (int i = 0; i < map.rank; ++i) bytes *= map.copied[i];
  return bytes;
}

// Calls `row(address, lead_bytes, inside_bytes, offset)` for every innermost row of a box: where its part inside of
// the tensor begins, how many bytes lie before that part and in it, and the row's place among the copied ones.
// `address` is 0 and nothing inside where the row lies outside. Rows lie `element_strides` apart, those of the first
// dimension side by side.
template <class Row>
void each_row(const tw_emulated_map &map, const int32_t *coordinates, Row row) {
  const int64_t size = map.element_bytes, row_bytes = map.copied[0] * size;
  const int64_t first = std::clamp<int64_t>(coordinates[0], 0, map.shape[0]);
  const int64_t end = std::clamp<int64_t>(coordinates[0] + map.copied[0], 0, map.shape[0]);
  int64_t rows = 1;
  for (int i = 1; i < map.rank; ++i) rows *= map.copied[i];
  for (int64_t number = 0; number < rows; ++number) {
    uint64_t address = map.address + uint64_t(first * size);
    bool is_inside = end > first;
    int64_t rest = number;
    for (int i = 1; i < map.rank; ++i) {
      int64_t at = coordinates[i] + rest % map.copied[i] * map.element_strides[i];
      rest /= map.copied[i];
      is_inside &= at >= 0 && at < map.shape[i];
      address += uint64_t(at * map.strides[i]);
    }
    if (is_inside)
      row(address, (first - coordinates[0]) * size, (end - first) * size, number * row_bytes);
    else
      row(uint64_t(0), int64_t(0), int64_t(0), number * row_bytes);
  }
}

const tw_emulated_map &checked_map(Thread &thread, Site site, const void *address, uint32_t rank, uint64_t shared) {
  Scheduler &scheduler = *thread.scheduler;
  const tw_emulated_map *map = scheduler.launch.map(address);
  if (!map) scheduler.fail(thread, TW_MISUSE, site, "this is no tensor map of the kernel");
  if (uint32_t(map->rank) != rank)
    scheduler.fail(thread, TW_MISUSE, site,
                   std::to_string(rank) + " coordinates for a tensor map of " + std::to_string(map->rank) +
                       " dimensions");
  check_inside(thread, site, shared - reinterpret_cast<uint64_t>(thread.shared), uint64_t(box_bytes(*map)));
  check_alignment(thread, site, shared_offset(thread, shared), kBoxAlignment, "a box in shared memory");
  return *map;
}

}  // namespace

void deliver(Scheduler &scheduler, const BoxLoad &load) {
  const tw_emulated_map &map = *load.map;
  char *shared = load.block->shared;
  each_row(map, load.coordinates, [&](uint64_t address, int64_t lead, int64_t inside, int64_t offset) {
    const int64_t row_bytes = map.copied[0] * map.element_bytes;
    for (int64_t at = 0; at < row_bytes; at += 16) {
      char piece[16] = {};
      int64_t from = std::max(at, lead), to = std::min(at + 16, lead + inside);
      if (from < to)
        std::memcpy(piece + (from - at), reinterpret_cast<const char *>(address) + (from - lead), size_t(to - from));
      std::memcpy(shared + swizzled(uint32_t(load.target + offset + at), uint32_t(map.swizzle_bytes)), piece, 16);
    }
  });
  count_box(scheduler, load, box_bytes(map));
}

void complete_bulk(Thread &thread, uint32_t groups, bool) {
  if (thread.bulk_groups < groups) return;
  uint32_t last = thread.bulk_groups - groups;
  size_t done = 0;
  for (; done < thread.bulk_stores.size() && thread.bulk_stores[done].group <= last; ++done) {
    const BulkStore &store = thread.bulk_stores[done];
    const tw_emulated_map &map = *store.map;
    each_row(map, store.coordinates, [&](uint64_t address, int64_t lead, int64_t inside, int64_t offset) {
      std::vector<char> row(size_t(map.copied[0] * map.element_bytes));
      for (int64_t at = 0; at < int64_t(row.size()); at += 16)
        std::memcpy(row.data() + at,
                    thread.shared + swizzled(uint32_t(store.source + offset + at), uint32_t(map.swizzle_bytes)), 16);
      if (!inside) return;
      if (thread.scheduler->launch.checked) {
        Actor actor{thread.own[kOwnBulk].agent, store.group, true, false};
        check_global(thread, actor, store.site, map.buffer, address, uint32_t(inside), row.data() + lead);
      }
      std::memcpy(reinterpret_cast<void *>(address), row.data() + lead, size_t(inside));
    });
  }
  thread.bulk_stores.erase(thread.bulk_stores.begin(), thread.bulk_stores.begin() + done);
  if (thread.own[kOwnBulk].seen < last) thread.own[kOwnBulk].seen = last;
}

}  // namespace tw::emulator

using namespace tw::emulator;

extern "C" {

void twe_tma_load(Thread *thread, Site site, uint64_t target, const void *map_address, uint64_t barrier, uint32_t mask,
                  uint32_t rank, int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
  Scheduler &scheduler = *thread->scheduler;
  Cluster &cluster = *thread->block->cluster;
  const tw_emulated_map &map = checked_map(*thread, site, map_address, rank, target);
  BoxLoad load{nullptr, &map, {c0, c1, c2, c3, c4}, shared_offset(*thread, target), shared_offset(*thread, barrier), 0,
               site,    thread};
  const int64_t bytes = box_bytes(map);
  if (!mask) mask = 1u << thread->block->rank;
  if (mask >> cluster.blocks.size())
    scheduler.fail(*thread, TW_OUT_OF_BOUNDS, site,
                   "multicasts to mask " + std::to_string(mask) + " in a cluster of " +
                       std::to_string(cluster.blocks.size()) + " blocks");
  if (scheduler.launch.checked)
    each_row(map, load.coordinates, [&](uint64_t address, int64_t, int64_t inside, int64_t) {
      if (inside)
        check_global(*thread, actor_of(*thread), site, map.buffer, address, uint32_t(inside), nullptr);
    });
  for (uint32_t rank_of = 0; rank_of < cluster.blocks.size(); ++rank_of) {
    if (!(mask >> rank_of & 1)) continue;
    load.block = cluster.blocks[rank_of];
    if (!load.block->live)
      scheduler.fail(*thread, TW_MISUSE, site,
                     "block " + std::to_string(load.block->id) + ", which this loads to, has already returned");
    uint32_t agent;
    load.clock = claim_load(*thread, site, *load.block, barrier, &agent);
    if (scheduler.launch.checked) {
      Actor actor{agent, load.clock, true, false};
      check_shared(*thread, actor, site, *load.block, load.target, uint32_t(bytes), true);
    }
    if (scheduler.completes_early())
      deliver(scheduler, load);
    else
      scheduler.loads.push_back(load);
  }
}

void twe_tma_store(Thread *thread, Site site, const void *map_address, uint64_t source, uint32_t rank, int32_t c0,
                   int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
  Scheduler &scheduler = *thread->scheduler;
  Block &block = *thread->block;
  const tw_emulated_map &map = checked_map(*thread, site, map_address, rank, source);
  check_waited(*thread, site);
  Own &own = thread->own[kOwnBulk];
  if (own.agent == kNoAgent) {
    if (block.bulk_threads == kMostBulkThreads)
      scheduler.fail(*thread, TW_MISUSE, site,
                     "the emulator keeps at most " + std::to_string(kMostBulkThreads) +
                         " threads per block that store boxes");
    own.agent = block.rank * scheduler.launch.agents.count + scheduler.launch.agents.bulk(block.bulk_threads++);
  }
  BulkStore store{&map, {c0, c1, c2, c3, c4}, shared_offset(*thread, source), thread->bulk_groups + 1, site};
  if (scheduler.launch.checked) {
    Actor actor{own.agent, store.group, true, false};
    check_shared(*thread, actor, site, block, store.source, uint32_t(box_bytes(map)), false);
  }
  thread->bulk_stores.push_back(store);
}

void twe_bulk_commit(Thread *thread, Site) { ++thread->bulk_groups; }

void twe_bulk_wait(Thread *thread, Site, uint32_t groups, uint32_t read) {
  complete_bulk(*thread, groups, read);
}
}
