// Scheduling of an emulated launch: units one after the other, the threads of a unit as fibers in the seed's order.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "emulator.h"
#include "emulator_shadow.h"

namespace tw::emulator {
namespace {

// A thread that polls gives way this often per waiting thread before nobody can be expected to make progress.
constexpr uint64_t kPollsPerThread = 64, kLeastPolls = 4096;
// Checked accesses of one thread after which it will hardly ever wait again: some ten seconds.
constexpr uint64_t kMostAccesses = 100000000;

std::string ranges(std::vector<int64_t> threads) {
  std::sort(threads.begin(), threads.end());
  std::string text;
  for (size_t i = 0; i < threads.size();) {
    size_t end = i + 1;
    while (end < threads.size() && threads[end] == threads[end - 1] + 1) ++end;
    if (text.size() > 80) return text + ", ...";
    text += (text.empty() ? "" : ", ") + std::to_string(threads[i]);
    if (end > i + 1) text += "-" + std::to_string(threads[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace

thread_local Scheduler *Scheduler::active_ = nullptr;

Launch::Launch(const tw_emulation &given, Kernel entry)
    : table(given),
      kernel(entry),
      agents(uint32_t(given.block)),
      checked(given.is_checked),
      entries(agents.count * uint32_t(given.cluster)) {
  if (checked) global = std::make_unique<GlobalShadow>(given);
  int64_t unit = given.is_cooperative ? given.grid : given.cluster;
  units.resize(given.grid / unit);
  for (size_t i = 0; i < units.size(); ++i) units[i] = int64_t(i);
  if (given.seed) {
    Random random;
    random.seed(given.seed);
    for (size_t i = units.size(); i > 1; --i) std::swap(units[i - 1], units[random.below(i)]);
  }
}

Launch::~Launch() = default;

const tw_emulated_map *Launch::map(const void *address) const {
  auto found = static_cast<const tw_emulated_map *>(address);
  return found >= table.maps && found < table.maps + table.map_count ? found : nullptr;
}

bool Launch::add(const tw_finding &finding) {
  std::lock_guard<std::mutex> hold(lock_);
  for (int64_t i = 0; i < found_; ++i) {
    const tw_finding &other = table.findings[i];
    if (other.kind == finding.kind && other.site == finding.site && other.other_site == finding.other_site)
      return false;
  }
  if (found_ < table.most_findings) table.findings[found_++] = finding;
  const_cast<tw_emulation &>(table).finding_count = found_;
  if (found_ >= table.most_findings) stopped = true;
  return true;
}

void Meeting::reset() {
  arrived = 0;
  waiting.clear();
  clock = joined = ClockRef();
  known = released = nullptr;
}

Block::Block(const Launch &launch) {
  const tw_emulation &table = launch.table;
  threads.resize(table.block);
  uint32_t warp_count = uint32_t((table.block + kWarp - 1) / kWarp);
  warps.resize(warp_count);
  arrivals.resize(warp_count);
  for (uint32_t i = 0; i < launch.agents.warpgroups; ++i) warpgroups.emplace_back();
  shared_mapped = size_t(table.shared_bytes + 4095) / 4096 * 4096 + 4096;
  shared = static_cast<char *>(std::aligned_alloc(4096, shared_mapped));
  if (!shared) throw std::bad_alloc();
  if (launch.checked) shadow = std::make_unique<SharedShadow>(table.shared_bytes);
}

Block::~Block() { std::free(shared); }

void Block::start(const Launch &launch, int64_t block_id, uint32_t cluster_rank, Cluster *of, Scheduler *scheduler) {
  const tw_emulation &table = launch.table;
  id = block_id;
  rank = cluster_rank;
  cluster = of;
  live = uint32_t(table.block);
  // All ones is a NaN in every floating-point format, so that what was never written shows in results too.
  std::memset(shared, 0xff, table.shared_bytes);
  if (shadow) shadow->reset();
  barrier.reset();
  for (Meeting &meeting : named) meeting.reset();
  for (Meeting &meeting : warps) meeting.reset();
  for (WarpArrival &arrival : arrivals) arrival = {};
  for (Warpgroup &group : warpgroups) group.reset();
  mbarriers.clear();
  bulk_threads = 0;
  for (int64_t i = 0; i < table.block; ++i) {
    Thread &t = threads[i];
    t.id = i;
    t.block_id = block_id;
    t.shared = shared;
    t.parameters = table.parameters;
    t.block = this;
    t.scheduler = scheduler;
    t.fiber = nullptr;
    t.done = t.has_waited = false;
    t.site = kNoSite;
    t.waits_for = nullptr;
    t.copies.clear();
    t.bulk_stores.clear();
    t.first_copy = 0;
    t.copy_groups = t.bulk_groups = 0;
    t.known = t.released = t.observed = nullptr;
    uint32_t base = rank * launch.agents.count;
    t.own[kOwnThread] = {base + uint32_t(i), 1, 0};
    t.own[kOwnCopies] = {base + launch.agents.copies_of(uint32_t(i)), 0, 0};
    t.own[kOwnWgmma] = {base + launch.agents.warpgroup(uint32_t(i) / kWarpgroup), 0, 0};
    t.own[kOwnBulk] = Own();
  }
}

MBarrier *Block::find(uint32_t offset) {
  for (MBarrier &barrier : mbarriers)
    if (barrier.offset == offset) return &barrier;
  return nullptr;
}

Scheduler::Scheduler(Launch &of)
    : launch(of), clocks(of.entries * (of.table.has_async_proxy ? 2 : 1)), seed_(of.table.seed) {}

Scheduler::~Scheduler() {
  // Clocks go back to the pool, which must still be there.
  blocks_.clear();
  clusters_.clear();
}

void Scheduler::run() {
  const tw_emulation &table = launch.table;
  int64_t unit = table.is_cooperative ? table.grid : table.cluster;
  while (!launch.stopped) {
    size_t next = launch.next_unit++;
    if (next >= launch.units.size()) return;
    run_unit(launch.units[next], launch.units[next] * unit, unit);
  }
}

void Scheduler::run_unit(int64_t unit, int64_t first_block, int64_t count) {
  const tw_emulation &table = launch.table;
  random_.seed(seed_ + 0x51ed27 * uint64_t(unit + 1));
  while (int64_t(blocks_.size()) < count) blocks_.push_back(std::make_unique<Block>(launch));
  while (int64_t(clusters_.size()) < count / table.cluster) clusters_.push_back(std::make_unique<Cluster>());
  ready_.clear();
  loads.clear();
  live_ = 0;
  polls_ = 0;
  ClockRef start = launch.checked ? clocks.zero() : ClockRef();
  for (int64_t i = 0; i < count; ++i) {
    Cluster &cluster = *clusters_[i / table.cluster];
    if (i % table.cluster == 0) {
      cluster.number = (first_block + i) / table.cluster;
      cluster.blocks.clear();
      cluster.meeting.reset();
    }
    Block &block = *blocks_[i];
    cluster.blocks.push_back(&block);
    block.start(launch, first_block + i, uint32_t(i % table.cluster), &cluster, this);
    for (Thread &thread : block.threads) {
      thread.seen = start;
      ready_.push_back(&thread);
    }
    live_ += table.block;
  }
  active_ = this;
  while (live_ > 0 && !is_stopped_) {
    Thread *next = next_ready();
    if (next) {
      switch_to(next, &main_);
      current_ = nullptr;
      resume();
    } else if (!deliver_one()) {
      report_standstill();
      break;
    }
  }
  for (int64_t i = 0; i < count; ++i)
    for (Thread &thread : blocks_[i]->threads) {
      if (thread.stack) stacks_.give(thread.stack);
      thread.stack = nullptr;
      thread.seen = ClockRef();
    }
}

Thread *Scheduler::next_ready() {
  if (ready_.empty()) return nullptr;
  if (seed_) std::swap(ready_.front(), ready_[random_.below(ready_.size())]);
  Thread *next = ready_.front();
  ready_.pop_front();
  return next;
}

void Scheduler::fiber_main() {
  Scheduler &self = *active_;
  self.resume();
  for (;;) {
    Thread *thread = self.current_;
    self.launch.kernel(reinterpret_cast<void **>(thread));
    self.finish(*thread);
    Thread *next = self.next_ready();
    if (next && !next->fiber) {
      // A thread that has not begun takes over this stack: a kernel that never waits needs but one.
      next->fiber = thread->fiber;
      next->stack = thread->stack;
      thread->stack = nullptr;
      self.current_ = next;
      self.accesses_ = 0;
      continue;
    }
    self.abandoned_ = thread->stack;
    thread->stack = nullptr;
    void *ignored;
    if (next) self.switch_to(next, &ignored);
    switch_fiber(&ignored, self.main_);
  }
}

void Scheduler::switch_to(Thread *thread, void **save) {
  accesses_ = 0;
  if (!thread->fiber) {
    thread->stack = stacks_.take();
    thread->fiber = new_fiber(thread->stack, &Scheduler::fiber_main);
  }
  current_ = thread;
  switch_fiber(save, thread->fiber);
}

void Scheduler::resume() {
  if (abandoned_) stacks_.give(abandoned_);
  abandoned_ = nullptr;
}

void Scheduler::finish(Thread &thread) {
  if (!StackPool::is_intact(thread.stack))
    fail(thread, TW_MISUSE, kNoSite,
         "needs more than " + std::to_string(kStackBytes) + " B of stack: the kernel's arrays per thread are too large");
  check_finished(*this, thread);
  complete_copies(thread, 0);
  complete_bulk(thread, 0, false);
  thread.done = true;
  --thread.block->live;
  --live_;
  progress();
}

void Scheduler::wait(Thread &thread, Site site, const char *what, std::vector<Thread *> &list) {
  thread.site = site;
  thread.waits_for = what;
  list.push_back(&thread);
  if (Thread *next = next_ready())
    switch_to(next, &thread.fiber);
  else
    switch_fiber(&thread.fiber, main_);
  resume();
  current_ = &thread;
  thread.waits_for = nullptr;
}

void Scheduler::wake(std::vector<Thread *> &list) {
  for (Thread *thread : list) ready_.push_back(thread);
  list.clear();
  progress();
}

void Scheduler::poll(Thread &thread, Site site, const char *what) {
  ++polls_;
  if (polls_ > ready_.size() && deliver_one()) progress();
  thread.site = site;
  thread.waits_for = what;
  if (polls_ > kPollsPerThread * ready_.size() + kLeastPolls) {
    report_standstill();
    void *ignored;
    switch_fiber(&ignored, main_);
  }
  ready_.push_back(&thread);
  Thread *next = next_ready();
  if (next != &thread) {
    switch_to(next, &thread.fiber);
    resume();
    current_ = &thread;
  }
  thread.waits_for = nullptr;
}

void Scheduler::count_access(Thread &thread, Site site) {
  if (++accesses_ > kMostAccesses)
    fail(thread, TW_STANDSTILL, site,
         "has made " + std::to_string(kMostAccesses) + " accesses without waiting for anything: its loop has no end");
}

bool Scheduler::deliver_one() {
  if (loads.empty()) return false;
  size_t chosen = choose(loads.size());
  BoxLoad load = loads[chosen];
  loads.erase(loads.begin() + chosen);
  deliver(*this, load);
  return true;
}

void Scheduler::report_standstill() {
  is_stopped_ = true;
  launch.stopped = true;
  for (auto &block : blocks_) {
    if (!block->live) continue;
    std::map<std::pair<Site, std::string>, std::vector<int64_t>> waiting;
    const Thread *first = nullptr;
    for (const Thread &thread : block->threads) {
      if (thread.done || !thread.waits_for) continue;
      waiting[{thread.site, thread.waits_for}].push_back(thread.id);
      if (!first) first = &thread;
    }
    if (!first) continue;
    std::string text = "no thread can go on";
    for (const auto &group : waiting)
      text += "; " + ranges(group.second) + " wait for " + group.first.second + " at {" +
              std::to_string(group.first.first) + "}";
    size_t done = launch.table.block - block->live;
    if (done) text += "; " + std::to_string(done) + " threads of the block have returned";
    report(*first, TW_STANDSTILL, first->site, text);
    return;
  }
}

void Scheduler::report(const Thread &thread, tw_finding_kind kind, Site site, const std::string &text) {
  report(thread, kind, site, kNoSite, -1, -1, text);
}

void Scheduler::report(const Thread &thread, tw_finding_kind kind, Site site, Site other, int64_t other_block,
                       int64_t other_thread, const std::string &text) {
  tw_finding finding{};
  finding.kind = kind;
  finding.site = int32_t(site);
  finding.block = thread.block_id;
  finding.thread = thread.id;
  finding.other_site = other == kNoSite ? -1 : int32_t(other);
  finding.other_block = other_block;
  finding.other_thread = other_thread;
  std::strncpy(finding.text, text.c_str(), sizeof(finding.text) - 1);
  launch.add(finding);
  if (launch.stopped && !is_stopped_ && current_) {
    is_stopped_ = true;
    void *ignored;
    switch_fiber(&ignored, main_);
  }
}

void Scheduler::fail(const Thread &thread, tw_finding_kind kind, Site site, const std::string &text) {
  launch.stopped = true;
  report(thread, kind, site, text);
  std::abort();  // not reached: a stopped launch leaves the fiber
}

void Scheduler::synchronise(Thread &thread, Site site, Meeting &meeting, uint32_t count, const char *what,
                            bool waits) {
  if (launch.checked) {
    give(thread, meeting.clock, meeting.joined);
    if (thread.known) meeting.known = join(meeting.known, thread.known);
    if (thread.released) meeting.released = join(meeting.released, thread.released);
  }
  if (++meeting.arrived < count) {
    if (waits) wait(thread, site, what, meeting.waiting);
    return;
  }
  meeting.arrived = 0;
  pass(meeting, waits ? &thread : nullptr);
  wake(meeting.waiting);
}

void Scheduler::pass(Meeting &meeting, Thread *last) {
  if (!launch.checked) return;
  auto release = [&](Thread *thread) {
    thread->seen = meeting.clock;
    if (meeting.known) thread->known = meeting.known;
    if (meeting.released) thread->released = meeting.released;
  };
  for (Thread *thread : meeting.waiting) release(thread);
  if (last) release(last);
  meeting.clock = meeting.joined = ClockRef();
  meeting.known = meeting.released = nullptr;
}

}  // namespace tw::emulator
