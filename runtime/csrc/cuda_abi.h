// The C interface to NVIDIA GPUs, beside abi.h: plain structs that runtime/cuda_native.py mirrors field by field.
#pragma once
#include "abi.h"

// Bumped whenever a struct or function below changes.
#define TW_CUDA_ABI_VERSION 3

extern "C" {

// Dimensions are innermost first; `type` is a CUtensorMapDataType, `swizzle_bytes` 0, 32, 64 or 128.
struct tw_cuda_tensor_map {
  int32_t buffer, type, rank, swizzle_bytes;
  uint64_t shape[5], strides_bytes[4];
  uint32_t box[5], element_strides[5];
};

// `ptx` is compiled by the driver when it takes no `image`; null where there is none. One that `overlaps` may start
// before the kernel before it has ended, for which it waits itself.
struct tw_cuda_kernel {
  const char *image, *ptx;
  uint64_t image_bytes, ptx_bytes;
  const char *name, *symbol;
  int32_t grid, block, cluster, shared_bytes;
  int64_t workspace_bytes, zeroed_bytes;
  int32_t cooperative, assert_count, overlaps, rtasks;
  const tw_cuda_tensor_map *maps;
  int64_t map_count;
};

// `tables` as for the CPU, its objects unused; one kernel for each of its `object_count`.
struct tw_cuda_package {
  const tw_package *tables;
  const tw_cuda_kernel *kernels;
};

struct tw_cuda_weight {
  void *address;
  int32_t is_on_device;
};

struct tw_cuda_device {
  char name[128];
  int32_t major, minor, multiprocessors, driver_version;
  uint64_t memory_bytes, shared_bytes;
};

// What the driver says of a loaded kernel: registers and local bytes of a thread, static shared bytes of a block.
struct tw_cuda_resources {
  int32_t registers, local_bytes, shared_bytes, is_from_ptx;
};

enum tw_cuda_status {
  TW_CUDA_OK,
  TW_CUDA_DRIVER,    // a call of the driver failed
  TW_CUDA_MEMORY,    // the device has no memory left
  TW_CUDA_TABLE,     // the package does not hold together, or does not fit the device
  TW_CUDA_ARGUMENT,  // a caller's address is not aligned, or nothing is bound
  TW_CUDA_ASSERT,    // a kernel's check failed
};

// The calling thread's last failure. `step` is -1 when it is not about one; `status` of a failed check is 1 + its
// number, `is_late` when it happened in an earlier call.
struct tw_cuda_failure {
  const char *message;
  int64_t step;
  int32_t is_prepack, status, is_late, driver_code;
};

// When a call goes through a CUDA graph.
enum tw_cuda_graph_mode { TW_CUDA_GRAPH_NEVER, TW_CUDA_GRAPH_ALWAYS, TW_CUDA_GRAPH_AUTO };
}
