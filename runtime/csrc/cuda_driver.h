// The part of the CUDA driver API that the runtime uses, declared here and found by dlopen: nothing of CUDA is
// needed to build, and nothing is loaded before it is asked for. Names and values are those of NVIDIA's cuda.h, 12.0.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace tw::cuda {

using Context = struct ContextHandle *;
using Module = struct ModuleHandle *;
using Function = struct FunctionHandle *;
using Stream = struct StreamHandle *;
using Event = struct EventHandle *;
using Graph = struct GraphHandle *;
using GraphNode = struct GraphNodeHandle *;
using GraphExec = struct GraphExecHandle *;
using Address = unsigned long long;

enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kDeinitialized = 4,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kUnsupportedPtx = 222,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kContextDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kLaunchFailed = 719,
};
enum DeviceAttribute {
  kMultiprocessors = 16,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kCooperativeLaunch = 95,
  kSharedBytesOptIn = 97,
  kMemoryPools = 115,
  kClusterLaunch = 120,
};
enum FunctionAttribute {
  kStaticSharedBytes = 1,
  kLocalBytes = 3,
  kRegisters = 4,
  kDynamicSharedBytes = 8,
  kNonPortableClusters = 14,
};
enum JitOption { kErrorLog = 5, kErrorLogBytes = 6 };
enum StreamFlag { kNonBlocking = 1 };
enum EventFlag { kNoTiming = 2 };
enum HostFlag { kPortable = 1, kDeviceMap = 2 };
enum CaptureMode { kThreadLocal = 1 };
enum CaptureStatus { kNotCapturing = 0 };
enum LaunchAttributeId { kCooperative = 2, kClusterDimension = 4, kProgrammaticSerialization = 6 };

union LaunchValue {
  char bytes[64];
  void *pointer;
  int cooperative, programmatic_serialization;
  struct {
    unsigned x, y, z;
  } cluster;
};
struct LaunchAttribute {
  int id;
  char padding[4];
  LaunchValue value;
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attribute_count;
};
struct NodeParams {
  Function function;
  unsigned grid[3], block[3], shared_bytes;
  void **params;
  void **extra;
  void *kernel;
  Context context;
};
struct alignas(128) TensorMap {
  uint64_t opaque[16];
};
enum TensorMapType { kU8, kU16, kU32, kI32, kU64, kI64, kF16, kF32, kF64, kBf16, kF32Ftz, kTf32 };
enum TensorMapPromotion { kNoPromotion, kL2_64B, kL2_128B, kL2_256B };

// F(member, symbol, parameters...): every entry point, with the version that its symbol names.
#define TW_CUDA_FUNCTIONS(F)                                                                                      \
  F(get_error_name, "cuGetErrorName", int, const char **)                                                         \
  F(get_error_string, "cuGetErrorString", int, const char **)                                                     \
  F(init, "cuInit", unsigned)                                                                                     \
  F(driver_version, "cuDriverGetVersion", int *)                                                                  \
  F(device_get, "cuDeviceGet", int *, int)                                                                        \
  F(device_count, "cuDeviceGetCount", int *)                                                                      \
  F(device_name, "cuDeviceGetName", char *, int, int)                                                             \
  F(device_memory, "cuDeviceTotalMem_v2", size_t *, int)                                                          \
  F(device_attribute, "cuDeviceGetAttribute", int *, int, int)                                                    \
  F(context_retain, "cuDevicePrimaryCtxRetain", Context *, int)                                                   \
  F(context_release, "cuDevicePrimaryCtxRelease_v2", int)                                                         \
  F(context_push, "cuCtxPushCurrent_v2", Context)                                                                 \
  F(context_pop, "cuCtxPopCurrent_v2", Context *)                                                                 \
  F(module_load, "cuModuleLoadDataEx", Module *, const void *, unsigned, int *, void **)                          \
  F(module_unload, "cuModuleUnload", Module)                                                                      \
  F(module_function, "cuModuleGetFunction", Function *, Module, const char *)                                     \
  F(function_attribute, "cuFuncGetAttribute", int *, int, Function)                                               \
  F(function_set, "cuFuncSetAttribute", Function, int, int)                                                       \
  F(blocks_per_core, "cuOccupancyMaxActiveBlocksPerMultiprocessor", int *, Function, int, size_t)                 \
  F(launch, "cuLaunchKernelEx", const LaunchConfig *, Function, void **, void **)                                 \
  F(stream_create, "cuStreamCreate", Stream *, unsigned)                                                          \
  F(stream_destroy, "cuStreamDestroy_v2", Stream)                                                                 \
  F(stream_synchronize, "cuStreamSynchronize", Stream)                                                            \
  F(stream_wait, "cuStreamWaitEvent", Stream, Event, unsigned)                                                    \
  F(stream_is_capturing, "cuStreamIsCapturing", Stream, int *)                                                    \
  F(begin_capture, "cuStreamBeginCapture_v2", Stream, int)                                                        \
  F(end_capture, "cuStreamEndCapture", Stream, Graph *)                                                           \
  F(capture_info, "cuStreamGetCaptureInfo_v2", Stream, int *, uint64_t *, Graph *, const GraphNode **, size_t *)  \
  F(event_create, "cuEventCreate", Event *, unsigned)                                                             \
  F(event_destroy, "cuEventDestroy_v2", Event)                                                                    \
  F(event_record, "cuEventRecord", Event, Stream)                                                                 \
  F(event_synchronize, "cuEventSynchronize", Event)                                                               \
  F(event_elapsed, "cuEventElapsedTime", float *, Event, Event)                                                   \
  F(memory_allocate, "cuMemAlloc_v2", Address *, size_t)                                                          \
  F(memory_free, "cuMemFree_v2", Address)                                                                         \
  F(memory_allocate_async, "cuMemAllocAsync", Address *, size_t, Stream)                                          \
  F(memory_free_async, "cuMemFreeAsync", Address, Stream)                                                         \
  F(host_allocate, "cuMemHostAlloc", void **, size_t, unsigned)                                                   \
  F(host_free, "cuMemFreeHost", void *)                                                                           \
  F(host_device_address, "cuMemHostGetDevicePointer_v2", Address *, void *, unsigned)                             \
  F(copy_to_device, "cuMemcpyHtoDAsync_v2", Address, const void *, size_t, Stream)                                \
  F(copy_to_host, "cuMemcpyDtoHAsync_v2", void *, Address, size_t, Stream)                                        \
  F(fill, "cuMemsetD8Async", Address, unsigned char, size_t, Stream)                                              \
  F(encode_tiled, "cuTensorMapEncodeTiled", TensorMap *, int, uint32_t, void *, const uint64_t *,                 \
    const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int)                                     \
  F(graph_instantiate, "cuGraphInstantiateWithFlags", GraphExec *, Graph, unsigned long long)                     \
  F(graph_launch, "cuGraphLaunch", GraphExec, Stream)                                                             \
  F(graph_set_node, "cuGraphExecKernelNodeSetParams_v2", GraphExec, GraphNode, const NodeParams *)                \
  F(graph_exec_destroy, "cuGraphExecDestroy", GraphExec)                                                          \
  F(graph_destroy, "cuGraphDestroy", Graph)

// Whether an error ends the use of the device in this process.
// Whether the process can use the device no more; between these lie others, such as too many resources for a launch.
inline bool is_sticky(int code) {
  return code == kIllegalAddress || code == kLaunchTimeout || code == kContextDestroyed || code == kAssert ||
         (code >= kHardwareStackError && code <= kLaunchFailed);
}

// A call of the driver failed; the message says which and why.
struct Error : std::runtime_error {
  Error(int code, const std::string &what) : std::runtime_error(what), code(code) {}
  int code;
};

struct Driver {
#define TW_CUDA_MEMBER(member, symbol, ...) int (*member)(__VA_ARGS__) = nullptr;
  TW_CUDA_FUNCTIONS(TW_CUDA_MEMBER)
#undef TW_CUDA_MEMBER
  int version = 0;  // 1000 * major + 10 * minor, of the CUDA that the driver is made for

  // `CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)`.
  std::string text(int code) const;
  [[noreturn]] void fail(int code, const std::string &what) const;
  void check(int code, const char *what) const {
    if (code != kSuccess) fail(code, what);
  }

  // The driver in the library called `name`, loaded and initialised once; throws Error.
  static const Driver &open(const std::string &name);
};

// Whether this process is a fork of one that used CUDA, which no driver survives.
bool is_forked();

// Makes a device's context current on the calling thread, and what was current before again.
class Current {
 public:
  Current(const Driver &driver, Context context) : driver_(driver) {
    driver.check(driver.context_push(context), "making the device's context current");
  }
  ~Current() {
    Context popped;
    driver_.context_pop(&popped);
  }
  Current(const Current &) = delete;
  Current &operator=(const Current &) = delete;

 private:
  const Driver &driver_;
};

}  // namespace tw::cuda
