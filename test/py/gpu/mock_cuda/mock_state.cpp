// Queues, memory and what tests ask of the mock driver.
#include "mock_state.h"

#include <algorithm>
#include <cstdlib>

namespace mock {

State &state() {
  static State instance;
  return instance;
}

namespace {
thread_local std::vector<int> context_stack;
thread_local bool capturing_here = false;
}  // namespace

std::vector<int> &contexts() { return context_stack; }
bool thread_is_capturing() { return capturing_here; }
void set_thread_capturing(bool is_capturing) { capturing_here = is_capturing; }

int enter(const char *name, bool needs_context) {
  State &s = state();
  if (++s.calls == s.fail_at) {
    note("injected failure of ", name);
    return s.fail_code;
  }
  if (s.sticky) return s.sticky;
  if (needs_context && context_stack.empty()) {
    problem(std::string(name) + " without a current context");
    return kInvalidContext;
  }
  return 0;
}

void leave(const char *name) {
  if (context_stack.empty()) problem(std::string(name) + " without a current context");
}

bool is_live(Address address, uint64_t bytes) {
  auto &ranges = state().ranges;
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return false;
  const auto &[start, range] = *std::prev(after);
  return range.is_alive && address + bytes <= start + range.bytes;
}

Address allocate(uint64_t bytes, const char *kind) {
  State &s = state();
  if (s.allocated + bytes > s.devices[0].memory_bytes) return 0;
  void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0xCD, bytes);
  s.ranges[Address(memory)] = {bytes, true, kind};
  s.allocated += bytes;
  return Address(memory);
}

bool release(Address address, const char *kind) {
  State &s = state();
  auto found = s.ranges.find(address);
  if (found == s.ranges.end() || !found->second.is_alive || std::string(found->second.kind) != kind) {
    problem(std::string("freed as ") + kind + " what is none or was freed before");
    return false;
  }
  found->second.is_alive = false;
  s.allocated -= found->second.bytes;
  std::memset(reinterpret_cast<void *>(address), 0xDD, found->second.bytes);
  return true;
}

StreamState *stream_of(void *handle) {
  if (!handle) return &state().default_stream;
  auto *stream = static_cast<StreamState *>(handle);
  if (state().streams.count(stream)) return stream;
  problem("a stream that is none or was destroyed");
  return nullptr;
}

int submit(StreamState *stream, Operation operation) {
  if (!stream) return kInvalidHandle;
  if (stream->capture) {
    problem("work other than a kernel on a stream that is being captured");
    return kCaptureUnsupported;
  }
  stream->is_after_kernel = false;
  stream->queue.push_back(std::move(operation));
  return 0;
}

void drain_until(EventState &event, uint64_t version) {
  while (event.done < version) {
    StreamState &stream = *event.streams.at(version - 1);
    if (stream.queue.empty()) {
      problem("an event is waited for that nothing will reach");
      return;
    }
    Operation next = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (next.waits) drain_until(*next.waits, next.version);
    if (next.run) next.run();
    if (next.records) {
      next.records->done = std::max(next.records->done, next.version);
      next.records->time_us = stream.clock_us;
    }
  }
}

void drain(StreamState &stream) {
  EventState end;
  end.streams = {&stream};
  end.submitted = 1;
  stream.queue.push_back({nullptr, nullptr, &end, 1});
  drain_until(end, 1);
}

}  // namespace mock

using namespace mock;

namespace {

template <class Lines>
const char *text_of(const Lines &lines) {
  static std::string text;
  text.clear();
  for (const auto &line : lines) text += line + "\n";
  return text.c_str();
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void mock_reset() {
  State &s = state();
  std::lock_guard guard(s.lock);
  const bool was = s.is_initialized;
  s.driver_version = 12080;
  s.devices.assign(1, {});
  s.is_initialized = was;
  s.early_refusal = kRefusesNone;
  s.sticky = 0;
  s.calls = 0;
  s.fail_at = -1;
  s.log.clear();
  s.problems.clear();
  s.ranges.clear();
  s.allocated = 0;
  // What a fault kept from being done and released.
  s.default_stream.queue.clear();
  s.context_uses.clear();
  s.modules.clear();
  s.functions.clear();
  s.streams.clear();
  s.events.clear();
  s.graphs.clear();
  s.execs.clear();
}

__attribute__((visibility("default"))) void mock_device(int index, const char *name, int attribute, int value) {
  State &s = state();
  if (size_t(index) >= s.devices.size()) s.devices.resize(index + 1);
  if (name) s.devices[index].name = name;
  if (attribute) s.devices[index].attributes[attribute] = value;
}

__attribute__((visibility("default"))) void mock_device_count(int count) { state().devices.resize(count); }
__attribute__((visibility("default"))) void mock_memory(uint64_t bytes) { state().devices[0].memory_bytes = bytes; }
__attribute__((visibility("default"))) void mock_driver_version(int version) { state().driver_version = version; }

// From here on early launches are refused: 0 never, 1 in captures, 2 always.
__attribute__((visibility("default"))) void mock_refuse_early(int where) {
  state().early_refusal = EarlyRefusal(where);
}

// The `n`th call from now fails; releases do not count.
__attribute__((visibility("default"))) void mock_fail(int64_t n, int code) {
  state().fail_at = state().calls + n;
  state().fail_code = code;
}

__attribute__((visibility("default"))) int64_t mock_calls() { return state().calls; }

// Memory of the test's own that kernels may use as if it were the device's; 0 bytes takes it back.
__attribute__((visibility("default"))) void mock_adopt(uint64_t address, uint64_t bytes) {
  state().ranges[address] = {bytes, bytes > 0, "adopted"};
}

__attribute__((visibility("default"))) const char *mock_log() { return text_of(state().log); }
__attribute__((visibility("default"))) void mock_clear_log() { state().log.clear(); }
__attribute__((visibility("default"))) const char *mock_problems() { return text_of(state().problems); }
__attribute__((visibility("default"))) uint64_t mock_allocated() { return state().allocated; }

// Everything that was made and not released, one line each.
__attribute__((visibility("default"))) const char *mock_live() {
  State &s = state();
  std::vector<std::string> found;
  auto count = [&](size_t number, const char *what) {
    if (number) found.push_back(std::to_string(number) + " " + what);
  };
  count(s.modules.size(), "modules");
  count(s.streams.size(), "streams");
  count(s.events.size(), "events");
  count(s.graphs.size(), "graphs");
  count(s.execs.size(), "executable graphs");
  size_t contexts = 0, blocks = 0;
  for (const auto &[device, uses] : s.context_uses) contexts += size_t(uses);
  for (const auto &[address, range] : s.ranges) blocks += range.is_alive && std::string(range.kind) != "adopted";
  count(contexts, "contexts");
  count(blocks, "blocks");
  return text_of(found);
}

// A stream of the caller's own, as PyTorch would have.
__attribute__((visibility("default"))) void *mock_stream() {
  auto *stream = new StreamState;
  state().streams.insert(stream);
  return stream;
}

__attribute__((visibility("default"))) void mock_end_stream(void *stream) {
  drain(*static_cast<StreamState *>(stream));
  state().streams.erase(static_cast<StreamState *>(stream));
}

__attribute__((visibility("default"))) void mock_drain(void *stream) { drain(*stream_of(stream)); }

__attribute__((visibility("default"))) void mock_capture(void *stream, int begins) {
  auto *s = static_cast<StreamState *>(stream);
  if (begins) {
    s->capture = new GraphState;
    s->last = nullptr;
  } else {
    note("caller captured ", s->capture->nodes.size(), " nodes");
    delete s->capture;
    s->capture = nullptr;
  }
}
}
