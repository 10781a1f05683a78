// The C interface of the runtime library: plain structs that runtime/native.py mirrors field by field.
#pragma once
#include <cstdint>

#define TW_EXPORT extern "C" __attribute__((visibility("default")))

// Bumped whenever a struct or function below changes; native.py refuses a library of another version.
#define TW_ABI_VERSION 7

extern "C" {

typedef int32_t (*tw_kernel_fn)(void *const *buffers, int64_t first_task, int64_t end_task, void *scratch);

// One relocatable ELF object and the function it defines.
struct tw_object {
  const uint8_t *data;
  uint64_t size;
  const char *name;
  const char *symbol;
  int64_t scratch_bytes;
};

enum tw_space { TW_INPUT, TW_OUTPUT, TW_WEIGHT, TW_CONSTANT, TW_PACKED, TW_ARENA, TW_SPACE_COUNT };

struct tw_buffer_ref {
  int32_t space;
  int32_t index;
  int64_t offset;
};

// `buffer_count` entries of the program's buffer table starting at `first_buffer`.
struct tw_step {
  int32_t kernel;
  int32_t buffer_count;
  int64_t first_buffer;
  int64_t tasks;
};

struct tw_program {
  const tw_step *steps;
  int64_t step_count;
  const tw_buffer_ref *buffers;
  int64_t buffer_count;
  int64_t arena_bytes;
};

// An output that is an input with some elements written over: main uses the output's memory for both.
struct tw_update {
  int64_t output;
  int64_t input;
};

struct tw_package {
  const tw_object *objects;
  int64_t object_count;
  const int64_t *input_bytes;
  int64_t input_count;
  const int64_t *output_bytes;
  int64_t output_count;
  const int64_t *weight_bytes;
  int64_t weight_count;
  const int64_t *constant_bytes;
  const uint8_t *const *constants;
  int64_t constant_count;
  int64_t packed_bytes;
  tw_program main;
  tw_program prepack;
  // Whether main reads and writes denormal numbers as zeros, on every thread it runs on.
  int64_t flush_denormals;
  const tw_update *updates;
  int64_t update_count;
};

// What a run returns: 0, or (step + 1) << 32 | kernel status, or a negative TW_ERROR.
enum tw_error { TW_ERROR_MEMORY = -1, TW_ERROR_UNBOUND = -2 };
}
