// Entry points of the mock driver: devices, contexts, modules, launches, memory. Each checks what CUDA demands.
#include <algorithm>

#include "mock_state.h"

using namespace mock;
using namespace tw::cuda;

namespace mock {
std::vector<int> &contexts();
}

namespace {

int device_of(Context context) { return int(reinterpret_cast<intptr_t>(context)) - 1; }

bool is_device(int device) { return device >= 0 && size_t(device) < state().devices.size(); }

int range_problem(const char *what) {
  problem(std::string(what) + " outside of live memory");
  return kInvalidValue;
}

}  // namespace

#define ENTER(name)                          \
  std::lock_guard guard(state().lock);       \
  if (int code = enter(name)) return code
#define ENTER_FREELY(name)                   \
  std::lock_guard guard(state().lock);       \
  if (int code = enter(name, false)) return code

MOCK_API cuGetErrorName(int code, const char **name) {
  static std::map<int, std::string> names = {{2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                             {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                             {218, "CUDA_ERROR_INVALID_PTX"},
                                             {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  auto found = names.emplace(code, "CUDA_ERROR_" + std::to_string(code)).first;
  *name = found->second.c_str();
  return 0;
}

MOCK_API cuGetErrorString(int code, const char **meaning) {
  *meaning = code == 2 ? "out of memory" : code == 700 ? "an illegal memory access was encountered" : "mock failure";
  return 0;
}

MOCK_API cuInit(unsigned flags) {
  ENTER_FREELY("cuInit");
  state().is_initialized = true;
  return flags ? int(kInvalidValue) : 0;
}

MOCK_API cuDriverGetVersion(int *version) {
  *version = state().driver_version;
  return 0;
}

MOCK_API cuDeviceGetCount(int *count) {
  ENTER_FREELY("cuDeviceGetCount");
  if (!state().is_initialized) return kNotInitialized;
  *count = int(state().devices.size());
  return 0;
}

MOCK_API cuDeviceGet(int *device, int ordinal) {
  ENTER_FREELY("cuDeviceGet");
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return 0;
}

MOCK_API cuDeviceGetName(char *name, int bytes, int device) {
  ENTER_FREELY("cuDeviceGetName");
  std::snprintf(name, size_t(bytes), "%s", state().devices.at(size_t(device)).name.c_str());
  return 0;
}

MOCK_API cuDeviceTotalMem_v2(size_t *bytes, int device) {
  ENTER_FREELY("cuDeviceTotalMem");
  *bytes = state().devices.at(size_t(device)).memory_bytes;
  return 0;
}

MOCK_API cuDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER_FREELY("cuDeviceGetAttribute");
  const auto &known = state().devices.at(size_t(device)).attributes;
  auto found = known.find(attribute);
  if (found == known.end()) {
    problem("device attribute " + std::to_string(attribute));
    return kInvalidValue;
  }
  *value = found->second;
  return 0;
}

MOCK_API cuDevicePrimaryCtxRetain(Context *context, int device) {
  ENTER_FREELY("cuDevicePrimaryCtxRetain");
  ++state().context_uses[device];
  *context = reinterpret_cast<Context>(intptr_t(device + 1));
  return 0;
}

MOCK_API cuDevicePrimaryCtxRelease_v2(int device) {
  std::lock_guard guard(state().lock);
  if (--state().context_uses[device] < 0) problem("a context released once too often");
  return 0;
}

MOCK_API cuCtxPushCurrent_v2(Context context) {
  ENTER_FREELY("cuCtxPushCurrent");
  if (state().context_uses[device_of(context)] < 1) {
    problem("a released context made current");
    return kInvalidContext;
  }
  contexts().push_back(device_of(context));
  return 0;
}

MOCK_API cuCtxPopCurrent_v2(Context *context) {
  std::lock_guard guard(state().lock);
  if (contexts().empty()) {
    problem("a context popped that was not pushed");
    return kInvalidContext;
  }
  *context = reinterpret_cast<Context>(intptr_t(contexts().back() + 1));
  contexts().pop_back();
  return 0;
}

MOCK_API cuModuleLoadDataEx(ModuleState **module, const void *image, unsigned count, int *options, void **values) {
  ENTER("cuModuleLoadDataEx");
  char *log = nullptr;
  uint64_t log_bytes = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == kErrorLog) log = static_cast<char *>(values[i]);
    if (options[i] == kErrorLogBytes) log_bytes = reinterpret_cast<uint64_t>(values[i]);
  }
  auto made = std::make_unique<ModuleState>();
  if (int code = parse_image(static_cast<const char *>(image), *made, log, log_bytes)) return code;
  note("module ", std::string(static_cast<const char *>(image)).substr(0, 4));
  state().modules.insert(made.get());
  *module = made.release();
  return 0;
}

MOCK_API cuModuleUnload(ModuleState *module) {
  std::lock_guard guard(state().lock);
  leave("cuModuleUnload");
  if (!state().modules.erase(module)) {
    problem("a module unloaded twice");
    return kInvalidHandle;
  }
  auto &functions = state().functions;
  for (auto i = functions.begin(); i != functions.end();) i = (*i)->module == module ? functions.erase(i) : std::next(i);
  return 0;  // functions stay in memory, so that a late launch is seen
}

MOCK_API cuModuleGetFunction(FunctionState **function, ModuleState *module, const char *name) {
  ENTER("cuModuleGetFunction");
  for (const Code &code : module->functions)
    if (code.symbol == name) {
      *function = new FunctionState{module, code};
      state().functions.insert(*function);
      return 0;
    }
  return kNotFound;
}

MOCK_API cuFuncGetAttribute(int *value, int attribute, FunctionState *function) {
  ENTER("cuFuncGetAttribute");
  switch (attribute) {
    case kRegisters: *value = int(function->code.number("registers", 32)); return 0;
    case kLocalBytes: *value = int(function->code.number("local")); return 0;
    case kStaticSharedBytes: *value = int(function->code.number("static")); return 0;
  }
  problem("function attribute " + std::to_string(attribute));
  return kInvalidValue;
}

MOCK_API cuFuncSetAttribute(FunctionState *function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  note("set attribute ", attribute, " of ", function->code.symbol, " to ", value);
  const int most = state().devices[0].attributes[kSharedBytesOptIn] - int(function->code.number("static"));
  if (attribute == kDynamicSharedBytes && value <= most)
    function->granted_shared = value;
  else if (attribute == kNonPortableClusters)
    function->has_large_clusters = value != 0;
  else
    return kInvalidValue;
  return 0;
}

MOCK_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, FunctionState *function, int threads, size_t shared) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  const int by_threads = 2048 / threads, by_shared = shared ? int(233472 / (shared + 1024)) : 32;
  *blocks = std::min({32, by_threads, by_shared, int(function->code.number("blocks", 32))});
  return 0;
}

MOCK_API cuLaunchKernelEx(const LaunchConfig *config, FunctionState *function, void **params, void **extra) {
  ENTER("cuLaunchKernelEx");
  State &s = state();
  auto refuse = [&](const std::string &what) {
    problem("launch of " + function->code.symbol + ": " + what);
    return int(kInvalidValue);
  };
  if (!s.functions.count(function)) return refuse("its module was unloaded");
  const auto [gx, gy, gz] = config->grid;
  const auto [bx, by, bz] = config->block;
  if (gx < 1 || gx > 0x7fffffff || gy != 1 || gz != 1 || extra) return refuse("grid");
  if (bx < 1 || bx > 1024 || by != 1 || bz != 1) return refuse("block");
  if (int(config->shared_bytes) > function->granted_shared - int(function->code.number("static")) &&
      int(config->shared_bytes) > function->granted_shared)
    return refuse("more dynamic shared memory than it was granted");
  if (function->code.number("threads", bx) != bx) return refuse("another block than it was compiled for");
  unsigned cluster = 1;
  bool is_cooperative = false, is_early = false;
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const LaunchAttribute &one = config->attributes[i];
    if (one.id == kClusterDimension && one.value.cluster.y == 1 && one.value.cluster.z == 1)
      cluster = one.value.cluster.x;
    else if (one.id == kCooperative)
      is_cooperative = one.value.cooperative == 1;
    else if (one.id == kProgrammaticSerialization && s.devices[0].attributes[kCapabilityMajor] >= 9)
      is_early = one.value.programmatic_serialization == 1;
    else
      return refuse("attribute");
  }
  if (cluster < 1 || gx % cluster || cluster > (function->has_large_clusters ? 16u : 8u)) return refuse("cluster");
  note("launch ", function->code.symbol, " grid ", gx, " block ", bx, " shared ", config->shared_bytes, " cluster ",
       cluster, is_cooperative ? " cooperative" : "", is_early ? " early" : "",
       config->stream ? "" : " default stream");
  StreamState *stream = stream_of(config->stream);
  if (!stream) return kInvalidHandle;
  if (stream->capture && stream->capture->is_spoilt) return kCaptureInvalidated;
  if (is_early && is_cooperative) return refuse("early and cooperative");
  if (is_early && !(stream->capture ? stream->last != nullptr : stream->is_after_kernel))
    return refuse("early, but not after a kernel");
  if (is_early && s.early_refusal >= (stream->capture ? kRefusesInCaptures : kRefusesAll)) {
    if (stream->capture) stream->capture->is_spoilt = true;
    return kNotSupported;
  }
  Params found = read_params(*function, params);
  if (stream->capture) {
    stream->capture->nodes.push_back(std::make_unique<NodeState>(NodeState{function, found}));
    stream->last = stream->capture->nodes.back().get();
    return 0;
  }
  const int code = submit(stream, {[function, found, stream] { execute(*function, found, *stream); }, nullptr, nullptr, 0});
  stream->is_after_kernel = true;
  return code;
}

MOCK_API cuMemAlloc_v2(Address *to, size_t bytes) {
  ENTER("cuMemAlloc");
  if (thread_is_capturing()) problem("cuMemAlloc while this thread captures");
  if (!bytes) return kInvalidValue;
  *to = allocate(bytes, "device");
  note("allocated ", bytes);
  return *to ? 0 : int(kOutOfMemory);
}

MOCK_API cuMemFree_v2(Address address) {
  std::lock_guard guard(state().lock);
  leave("cuMemFree");
  for (StreamState *stream : state().streams) drain(*stream);  // it waits for the device
  note("freed");
  return release(address, "device") ? 0 : int(kInvalidValue);
}

MOCK_API cuMemAllocAsync(Address *to, size_t bytes, StreamState *stream) {
  ENTER("cuMemAllocAsync");
  if (!bytes || !stream_of(stream)) return kInvalidValue;
  *to = allocate(bytes, "pool");
  note("allocated ", bytes);
  return *to ? 0 : int(kOutOfMemory);
}

MOCK_API cuMemFreeAsync(Address address, StreamState *stream) {
  std::lock_guard guard(state().lock);
  leave("cuMemFreeAsync");
  drain(*stream);
  return release(address, "pool") ? 0 : int(kInvalidValue);
}

MOCK_API cuMemHostAlloc(void **to, size_t bytes, unsigned flags) {
  ENTER("cuMemHostAlloc");
  if (!(flags & kDeviceMap)) problem("host memory that the device cannot reach");
  *to = reinterpret_cast<void *>(allocate(bytes, "host"));
  return *to ? 0 : int(kOutOfMemory);
}

MOCK_API cuMemFreeHost(void *address) {
  std::lock_guard guard(state().lock);
  leave("cuMemFreeHost");
  return release(Address(address), "host") ? 0 : int(kInvalidValue);
}

MOCK_API cuMemHostGetDevicePointer_v2(Address *to, void *address, unsigned) {
  ENTER("cuMemHostGetDevicePointer");
  *to = Address(address);
  return is_live(*to, 1) ? 0 : range_problem("a device pointer");
}

MOCK_API cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, StreamState *stream) {
  ENTER("cuMemcpyHtoDAsync");
  if (!is_live(to, bytes)) return range_problem("a copy to the device");
  // Pageable memory is read before the call returns.
  std::string held(static_cast<const char *>(from), bytes);
  auto copy = [to, held] {
    if (!is_live(to, held.size())) return problem("a copy to memory that was freed meanwhile");
    std::memcpy(reinterpret_cast<void *>(to), held.data(), held.size());
  };
  note("copied in ", bytes);
  return submit(stream_of(stream), {copy, nullptr, nullptr, 0});
}

MOCK_API cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, StreamState *stream) {
  ENTER("cuMemcpyDtoHAsync");
  if (!is_live(from, bytes)) return range_problem("a copy from the device");
  auto copy = [to, from, bytes] { std::memcpy(to, reinterpret_cast<const void *>(from), bytes); };
  note("copied out ", bytes);
  return submit(stream_of(stream), {copy, nullptr, nullptr, 0});
}

MOCK_API cuMemsetD8Async(Address to, unsigned char value, size_t bytes, StreamState *stream) {
  ENTER("cuMemsetD8Async");
  if (!is_live(to, bytes)) return range_problem("a fill");
  note("filled ", bytes);
  auto fill = [to, value, bytes] { std::memset(reinterpret_cast<void *>(to), value, bytes); };
  return submit(stream_of(stream), {fill, nullptr, nullptr, 0});
}
