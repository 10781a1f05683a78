// Checks of single accesses: inside of its buffer, aligned, of something written, ordered after what it depends on.
#include "emulator_shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace tw::emulator {
namespace {

template <class T>
T *map_zeros(size_t bytes) {
  void *mapped = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T *>(mapped);
}

std::string count(uint32_t bytes) { return std::to_string(bytes) + " B"; }

// Who an agent of this cluster is, and what would have ordered its access; also its block and thread, or -1.
struct Party {
  int64_t block = -1, thread = -1;
  std::string name, remedy;
};

Party party(const Thread &reader, const Scheduler &scheduler, int64_t cluster, uint32_t agent) {
  const Agents &agents = scheduler.launch.agents;
  uint32_t rank = agent / agents.count, number = agent % agents.count;
  Party found;
  found.block = cluster * scheduler.launch.table.cluster + rank;
  bool is_own_block = found.block == reader.block_id;
  std::string place = is_own_block ? "" : " of block " + std::to_string(found.block);
  std::string between = is_own_block ? "a barrier between them is missing"
                                     : "nothing makes it visible to this block (release, acquire and fence)";
  if (number < agents.threads) {
    found.thread = number;
    found.name = "thread " + std::to_string(number) + place;
    found.remedy = between;
  } else if (number < 2 * agents.threads) {
    found.thread = number - agents.threads;
    found.name = "an asynchronous copy of thread " + std::to_string(found.thread) + place;
    found.remedy = found.thread == reader.id ? "it must be waited for" : "it must be waited for, then a barrier passed";
  } else if (number < agents.mbarrier(0)) {
    found.name = "a wgmma of warpgroup " + std::to_string(number - 2 * agents.threads) + place;
    found.remedy = "it must be waited for, and those who wait must be followed";
  } else if (number < agents.bulk(0)) {
    found.name = "a TMA load" + place;
    found.remedy = "its mbarrier must be waited for";
  } else {
    found.name = "a TMA store" + place;
    found.remedy = "it must be committed and waited for";
  }
  return found;
}

void report_race(Thread &thread, Site site, int64_t cluster, uint32_t agent, Site other, const std::string &what,
                 bool is_fence) {
  Party by = party(thread, *thread.scheduler, cluster, agent);
  std::string text = what + " by " + by.name + " at {" + std::to_string(other) + "}: " +
                     (is_fence ? "fence_async_shared between them is missing" : by.remedy);
  thread.scheduler->report(thread, TW_RACE, site, other, by.block, by.thread, text);
}

}  // namespace

SharedShadow::SharedShadow(int64_t bytes) : word_count_(size_t(bytes + 3) / 4) {
  words = map_zeros<Word>(word_count_ * sizeof(Word));
  ready = map_zeros<uint8_t>(word_count_);
}

SharedShadow::~SharedShadow() {
  munmap(words, std::max<size_t>(word_count_ * sizeof(Word), 1));
  munmap(ready, std::max<size_t>(word_count_, 1));
}

void SharedShadow::reset() {
  // Only words that were touched: those that have been written or, wrongly, read before.
  for (size_t i = 0; i < word_count_; ++i)
    if (ready[i]) std::memset(static_cast<void *>(words + i), 0, sizeof(Word));
  std::memset(ready, 0, word_count_);
}

GlobalShadow::GlobalShadow(const tw_emulation &table) {
  for (int64_t i = 0; i < table.buffer_count; ++i) {
    const tw_emulated_buffer &buffer = table.buffers[i];
    Buffer made{&buffer, buffer.granule == 4 ? 2 : buffer.granule == 2 ? 1 : 0, nullptr, 0};
    if (buffer.is_written && !buffer.is_flag) {
      made.mapped = size_t((buffer.bytes >> made.shift) + 1) * sizeof(Element);
      made.elements = map_zeros<Element>(made.mapped);
    }
    buffers.push_back(made);
  }
}

GlobalShadow::~GlobalShadow() {
  for (Buffer &buffer : buffers)
    if (buffer.elements) munmap(buffer.elements, buffer.mapped);
}

const GlobalShadow::Buffer *GlobalShadow::find(int32_t argument, uint64_t address, uint64_t bytes) const {
  auto holds = [&](const Buffer &buffer) {
    return address >= buffer.table->address && bytes <= uint64_t(buffer.table->bytes) &&
           address - buffer.table->address <= uint64_t(buffer.table->bytes) - bytes;
  };
  if (argument >= 0) return holds(buffers[argument]) ? &buffers[argument] : nullptr;
  for (const Buffer &buffer : buffers)
    if (holds(buffer)) return &buffer;
  return nullptr;
}

Actor actor_of(const Thread &thread) {
  return {thread.own[kOwnThread].agent, thread.own[kOwnThread].seen, false, false};
}

void check_inside(Thread &thread, Site site, uint64_t offset, uint64_t bytes) {
  uint64_t size = uint64_t(thread.scheduler->launch.table.shared_bytes);
  if (bytes <= size && offset <= size - bytes) return;
  thread.scheduler->fail(thread, TW_OUT_OF_BOUNDS, site,
                         "accesses " + count(uint32_t(bytes)) + " at offset " + std::to_string(int64_t(offset)) +
                             " of " + std::to_string(size) + " B of shared memory");
}

void check_alignment(Thread &thread, Site site, uint64_t address, uint32_t alignment, const char *what) {
  if (address % alignment == 0) return;
  thread.scheduler->fail(thread, TW_MISALIGNED, site,
                         std::string(what) + " must be aligned to " + count(alignment) + ", found " +
                             std::to_string(address % alignment) + " B past a multiple");
}

void check_waited(Thread &thread, Site site) {
  Scheduler &scheduler = *thread.scheduler;
  if (!scheduler.launch.checked || !scheduler.launch.table.overlaps || thread.has_waited) return;
  scheduler.report(thread, TW_EARLY, site,
                   "touches global memory before it has waited for the kernels launched before this one, which may "
                   "still use it: grid_dependency_wait must come first");
}

void check_shared(Thread &thread, const Actor &actor, Site site, Block &block, uint64_t offset, uint32_t bytes,
                  bool is_write) {
  Scheduler &scheduler = *thread.scheduler;
  SharedShadow &shadow = *block.shadow;
  const Agents &agents = scheduler.launch.agents;
  const bool is_atomic = scheduler.launch.is_atomic(site);
  auto is_ordered = [&](const Access &access) {
    uint32_t agent = access.agent();
    if (agent == actor.agent) return true;
    bool needs_fence = actor.is_async && agents.is_generic(agent);
    if (actor.is_common)
      return thread.seen[(needs_fence && scheduler.launch.table.has_async_proxy ? scheduler.launch.entries : 0) +
                         agent] >= access.clock();
    return needs_fence ? scheduler.has_seen_fenced(thread, agent, access.clock())
                       : scheduler.has_seen(thread, agent, access.clock());
  };
  auto conflict = [&](const Access &access, const char *what) {
    if (is_atomic && scheduler.launch.is_atomic(access.site())) return;
    bool is_fence = scheduler.has_seen(thread, access.agent(), access.clock()) && !actor.is_common;
    if (actor.is_common) is_fence = thread.seen[access.agent()] >= access.clock();
    report_race(thread, site, block.cluster->number, access.agent(), access.site(),
                (is_write ? "writes shared memory at offset " : "reads shared memory at offset ") +
                    std::to_string(offset) + " that was " + what,
                is_fence);
  };
  for (uint64_t word = offset / 4, end = (offset + bytes + 3) / 4; word < end; ++word) {
    uint32_t mask = 15;
    if (word * 4 < offset) mask &= 15u << (offset - word * 4);
    if (word * 4 + 4 > offset + bytes) mask &= 15u >> (word * 4 + 4 - offset - bytes);
    Word &cell = shadow.words[word];
    Access now(actor.agent, actor.clock, mask, site);
    if (!is_write) {
      if ((shadow.ready[word] & mask) != mask) {
        scheduler.report(thread, TW_UNINITIALISED, site,
                         "reads shared memory at offset " + std::to_string(word * 4) + " that nobody has written");
        shadow.ready[word] |= uint8_t(mask);
      }
      for (Access &write : cell.writes) {
        if (!write) break;
        if ((write.bytes() & mask) && !is_ordered(write)) conflict(write, "written");
      }
      Access *pair = cell.reads + (actor.agent / kWarpgroup & 1) * 2;
      if (pair[0].agent() != actor.agent)
        pair[1] = pair[0];
      else if (pair[0].clock() == actor.clock)
        now.add(pair[0].bytes());
      pair[0] = now;
      continue;
    }
    for (Access &write : cell.writes) {
      if (!write) break;
      if ((write.bytes() & mask) && !is_ordered(write)) conflict(write, "written");
    }
    for (Access &read : cell.reads) {
      if ((read.bytes() & mask) && !is_ordered(read)) conflict(read, "read");
      read.remove(mask);
    }
    int kept = 0;
    for (Access &write : cell.writes) {
      Access left = write;
      left.remove(mask);
      write = Access();
      if (left) cell.writes[kept++] = left;
    }
    cell.writes[std::min(kept, Word::kKept - 1)] = now;
    shadow.ready[word] |= uint8_t(mask);
  }
}

void check_global(Thread &thread, const Actor &actor, Site site, int32_t argument, uint64_t address, uint32_t bytes,
                  const void *value) {
  Scheduler &scheduler = *thread.scheduler;
  check_waited(thread, site);
  const GlobalShadow::Buffer *buffer = scheduler.launch.global->find(argument, address, bytes);
  if (!buffer) {
    std::string text = "accesses " + count(bytes);
    if (argument >= 0) {
      const tw_emulated_buffer &table = scheduler.launch.table.buffers[argument];
      text += " at byte " + std::to_string(int64_t(address - table.address)) + " of argument " +
              std::to_string(argument) + ", which has " + std::to_string(table.bytes) + " B";
    } else {
      text += " of global memory outside of all arguments";
    }
    scheduler.fail(thread, TW_OUT_OF_BOUNDS, site, text);
  }
  if (!buffer->elements) return;
  const int64_t cluster = thread.block->cluster->number;
  const bool is_atomic = scheduler.launch.is_atomic(site);
  auto is_ordered = [&](int32_t other, uint32_t agent, uint32_t clock) {
    if (other - 1 == cluster) return agent == actor.agent || scheduler.has_seen(thread, agent, clock);
    if (!thread.known) return false;
    auto found = thread.known->find(other - 1);
    return found != thread.known->end() && found->second[agent] >= clock;
  };
  const uint64_t start = address - buffer->table->address;
  const uint64_t granule = uint64_t(1) << buffer->shift;
  auto place = [&](uint64_t number) {
    return "byte " + std::to_string(number << buffer->shift) + " of argument " +
           std::to_string(buffer - scheduler.launch.global->buffers.data());
  };
  for (uint64_t number = start >> buffer->shift, end = (start + bytes + granule - 1) >> buffer->shift; number < end;
       ++number) {
    Element &element = buffer->elements[number];
    bool is_unordered_write = element.write_cluster &&
                              !is_ordered(element.write_cluster, element.write_agent, element.write_clock) &&
                              !(is_atomic && scheduler.launch.is_atomic(element.write_site));
    if (!value && !element.write_cluster && int64_t(number << buffer->shift) >= buffer->table->ready_bytes) {
      scheduler.report(thread, TW_UNINITIALISED, site, "reads " + place(number) + ", which nobody has written");
    } else if (!value && buffer->table->is_private && element.write_cluster &&
               (element.write_cluster - 1 != cluster || element.write_agent != actor.agent) &&
               thread.own[kOwnBulk].agent != element.write_agent) {
      Party by = party(thread, scheduler, element.write_cluster - 1, element.write_agent);
      scheduler.report(thread, TW_MISUSE, site, element.write_site, by.block, by.thread,
                       "reads " + place(number) + " written by " + by.name + " at {" +
                           std::to_string(element.write_site) +
                           "}: threads exchange values through shared memory or the workspace, as the compiler takes "
                           "buffers of a step for memory of one thread");
    } else if (!value && is_unordered_write) {
      report_race(thread, site, element.write_cluster - 1, element.write_agent, element.write_site,
                  "reads " + place(number) + " written", false);
    } else if (value) {
      bool is_unordered_read = element.read_cluster &&
                               !is_ordered(element.read_cluster, element.read_agent, element.read_clock) &&
                               !(is_atomic && scheduler.launch.is_atomic(element.read_site));
      if (is_unordered_write || is_unordered_read) {
        // Overlapping tiles may write the same value twice; an atomic's new value is not known here.
        uint64_t first = std::max(number << buffer->shift, start);
        uint64_t length = std::min((number + 1) << buffer->shift, start + bytes) - first;
        bool is_same = !is_atomic && !std::memcmp(static_cast<const char *>(value) + (first - start),
                                                  reinterpret_cast<void *>(buffer->table->address + first), length);
        if (!is_same && is_unordered_write)
          report_race(thread, site, element.write_cluster - 1, element.write_agent, element.write_site,
                      "writes another value to " + place(number) + " written", false);
        else if (!is_same)
          report_race(thread, site, element.read_cluster - 1, element.read_agent, element.read_site,
                      "writes " + place(number) + " read", false);
      }
    }
    if (value) {
      element.write_cluster = int32_t(cluster) + 1;
      element.write_agent = uint16_t(actor.agent);
      element.write_clock = actor.clock;
      element.write_site = uint16_t(site);
      element.read_cluster = 0;
    } else {
      element.read_cluster = int32_t(cluster) + 1;
      element.read_agent = uint16_t(actor.agent);
      element.read_clock = actor.clock;
      element.read_site = uint16_t(site);
    }
  }
}

}  // namespace tw::emulator
