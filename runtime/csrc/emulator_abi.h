// The C interface of the emulator: plain structs that runtime/emulator_native.py mirrors field by field.
#pragma once
#include <cstdint>

extern "C" {

enum tw_finding_kind {
  TW_OUT_OF_BOUNDS = 1,
  TW_MISALIGNED,
  TW_UNINITIALISED,
  TW_RACE,
  TW_DIVERGENCE,
  TW_STANDSTILL,
  TW_UNFINISHED,
  TW_MISUSE,
  TW_EARLY,
};

// Something wrong that a thread did at source operation `site`; `other_site` is -1 where no second one is involved.
// In `text`, {N} stands for source operation N.
struct tw_finding {
  int32_t kind, site;
  int64_t block, thread;
  int32_t other_site, reserved;
  int64_t other_block, other_thread;
  char text[640];
};

// A buffer in global memory. The first `ready_bytes` hold values before the launch; `granule` is the size of its
// elements, at most 4; `is_written` tells whether the kernel may write to it; a `is_flag` is not checked for races;
// what a thread writes to an `is_private` one no other thread may read in the same launch.
struct tw_emulated_buffer {
  uint64_t address;
  int64_t bytes, ready_bytes;
  int32_t granule, is_written, is_flag, is_private;
};

// A tensor map, dimensions innermost first; `strides[0]` is the element size.
struct tw_emulated_map {
  uint64_t address;
  int32_t rank, element_bytes, swizzle_bytes, buffer;
  int64_t shape[5], strides[5], copied[5], element_strides[5];
};

struct tw_emulation {
  int64_t grid, block, cluster, shared_bytes;
  int32_t is_cooperative, is_checked, workers, has_async_proxy, overlaps, reserved;
  uint64_t seed;
  const tw_emulated_buffer *buffers;
  int64_t buffer_count;
  void *const *parameters;  // addresses of the buffers, then of the maps' entries
  const tw_emulated_map *maps;
  int64_t map_count;
  const uint8_t *site_atomic;  // per source operation, whether it is atomic
  int64_t site_count;
  tw_finding *findings;
  int64_t most_findings, finding_count;
};
}
