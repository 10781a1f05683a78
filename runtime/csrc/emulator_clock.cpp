// How vector clocks pass between threads: what a thread gives at a release and takes at an acquire.
#include "emulator.h"

namespace tw::emulator {

bool Scheduler::has_seen(const Thread &thread, uint32_t agent, uint32_t clock) const {
  if (thread.seen[agent] >= clock) return true;
  // Most often another thread of the block: the one agent of those that could be the thread's own is itself.
  if (agent - thread.agent_base() < launch.agents.threads) return agent == thread.own[kOwnThread].agent;
  for (const Own &own : thread.own)
    if (own.agent == agent) return own.seen >= clock;
  return false;
}

bool Scheduler::has_seen_fenced(const Thread &thread, uint32_t agent, uint32_t clock) const {
  if (!launch.table.has_async_proxy) return has_seen(thread, agent, clock);
  if (thread.seen[launch.entries + agent] >= clock) return true;
  for (const Own &own : thread.own)
    if (own.agent == agent) return own.fenced >= clock;
  return false;
}

void Scheduler::give(Thread &thread, ClockRef &clock, ClockRef &joined) {
  if (!clock) {
    clock = clocks.copy(thread.seen);
  } else if (joined.get() != thread.seen.get()) {
    clock.make_own();
    clock.raise(thread.seen);
  } else {
    clock.make_own();
  }
  joined = thread.seen;
  for (const Own &own : thread.own) {
    if (own.agent == kNoAgent) continue;
    clock.raise(own.agent, own.seen);
    if (launch.table.has_async_proxy) clock.raise(launch.entries + own.agent, own.fenced);
  }
  ++thread.own[kOwnThread].seen;
}

void Scheduler::take(Thread &thread, const ClockRef &clock) {
  if (!clock || thread.seen.get() == clock.get()) return;
  if (taken_from_.get() != thread.seen.get() || taken_what_.get() != clock.get()) {
    taken_from_ = thread.seen;
    taken_what_ = clock;
    taken_to_ = clocks.copy(thread.seen);
    taken_to_.raise(clock);
  }
  thread.seen = taken_to_;
}

ClockRef Scheduler::snapshot(Thread &thread) {
  ClockRef clock, joined;
  give(thread, clock, joined);
  return clock;
}

// Ordinary accesses that the thread has seen, its own included, precede the asynchronous ones that it orders next.
void Scheduler::fence_proxy(Thread &thread) {
  if (!launch.checked || !launch.table.has_async_proxy) return;
  if (fenced_from_.get() != thread.seen.get()) {
    fenced_from_ = thread.seen;
    fenced_to_ = clocks.copy(thread.seen);
    std::memcpy(fenced_to_.entries() + launch.entries, fenced_to_.entries(), launch.entries * sizeof(uint32_t));
  }
  thread.seen = fenced_to_;
  for (Own &own : thread.own) own.fenced = own.seen;
  ++thread.own[kOwnThread].seen;
}

}  // namespace tw::emulator
