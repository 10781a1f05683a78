// The state of a CUDA driver that exists only in host memory: what tests configure, what calls left, what is alive.
//
// Work on a stream is queued and done only when somebody waits for it, so that a missing wait shows. Memory is host
// memory filled with garbage; it is never given back to the system, so that a use after free is seen, not suffered.
#pragma once
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cuda_driver.h"

namespace mock {

using tw::cuda::Address;
using tw::cuda::TensorMap;

constexpr int kIllegalAddress = 700, kCaptureUnsupported = 900, kCaptureInvalidated = 901, kInvalidContext = 201,
              kInvalidHandle = 400, kInvalidPtx = 218, kNotInitialized = 3, kInvalidDevice = 101, kNotSupported = 801;

// Which launches that may start before the kernel before them has ended the driver refuses.
enum EarlyRefusal { kRefusesNone, kRefusesInCaptures, kRefusesAll };

// One function of a mock image: `fn SYMBOL BODY key=value...`; `sig` has a letter per parameter, `p` or `m`.
struct Code {
  std::string symbol, body, sig;
  std::map<std::string, int64_t> numbers;
  int64_t number(const std::string &key, int64_t otherwise = 0) const {
    auto found = numbers.find(key);
    return found == numbers.end() ? otherwise : found->second;
  }
};

struct ModuleState {
  std::vector<Code> functions;
};

struct FunctionState {
  ModuleState *module;
  Code code;
  int granted_shared = 48 << 10;
  bool has_large_clusters = false;
};

struct Params {
  std::vector<Address> pointers;
  std::vector<TensorMap> maps;
};

struct EventState;

struct Operation {
  std::function<void()> run;
  EventState *waits = nullptr, *records = nullptr;
  uint64_t version = 0;
};

struct NodeState {
  FunctionState *function;
  Params params;
};

struct GraphState {
  std::vector<std::unique_ptr<NodeState>> nodes;
  bool is_spoilt = false;  // by a call that was refused
};

struct ExecState {
  GraphState *graph;
  std::vector<NodeState *> nodes;
  std::vector<Params> params;
};

struct StreamState {
  std::deque<Operation> queue;
  GraphState *capture = nullptr;
  NodeState *last = nullptr;
  bool is_after_kernel = false;  // what was queued last
  double clock_us = 0;
};

struct EventState {
  std::vector<StreamState *> streams;  // of each time it was recorded: a wait is for the last one before it
  uint64_t submitted = 0, done = 0;
  bool has_timing = true;
  double time_us = 0;
};

struct Range {
  uint64_t bytes;
  bool is_alive;
  const char *kind;
};

struct DeviceConfig {
  std::string name = "Mock GPU";
  std::map<int, int> attributes = {{16, 4}, {75, 9}, {76, 0}, {95, 1}, {97, 232448}, {115, 1}, {120, 1}};
  uint64_t memory_bytes = 1ull << 30;
};

struct State {
  std::recursive_mutex lock;
  int driver_version = 12080;
  std::vector<DeviceConfig> devices{1};
  bool is_initialized = false;
  int sticky = 0;
  EarlyRefusal early_refusal = kRefusesNone;
  int64_t calls = 0, fail_at = -1;
  int fail_code = 0;
  std::vector<std::string> log;
  std::vector<std::string> problems;
  std::map<int, int> context_uses;  // by device
  std::set<ModuleState *> modules;
  std::set<FunctionState *> functions;
  std::set<StreamState *> streams;
  std::set<EventState *> events;
  std::set<GraphState *> graphs;
  std::set<ExecState *> execs;
  std::map<Address, Range> ranges;
  uint64_t allocated = 0;
  StreamState default_stream;
};

State &state();

inline void problem(const std::string &what) { state().problems.push_back(what); }

template <class... Parts>
void note(const Parts &...parts) {
  std::ostringstream text;
  (text << ... << parts);
  state().log.push_back(text.str());
}

// The code that a call must return at once: an injected failure, a sticky error, a missing context; 0 to go on.
int enter(const char *name, bool needs_context = true);
// Inside of a call that releases something, which never fails on purpose.
void leave(const char *name);

bool is_live(Address address, uint64_t bytes);
Address allocate(uint64_t bytes, const char *kind);
bool release(Address address, const char *kind);

// Queues work on a stream, or does what capturing makes of it.
int submit(StreamState *stream, Operation operation);
// Does all work of a stream, and of others that it waits for.
void drain(StreamState &stream);
void drain_until(EventState &event, uint64_t version);
StreamState *stream_of(void *handle);
bool thread_is_capturing();
void set_thread_capturing(bool is_capturing);

// Runs the body of a kernel on its parameters.
void execute(const FunctionState &function, const Params &params, StreamState &stream);
int parse_image(const char *image, ModuleState &module, char *log, uint64_t log_bytes);
Params read_params(const FunctionState &function, void **params);

}  // namespace mock

#define MOCK_API extern "C" __attribute__((visibility("default"))) int
