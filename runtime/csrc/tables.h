// The checks that tables of a package pass before anything is made of them, whatever machine runs them.
#pragma once
#include <stdexcept>
#include <vector>

#include "abi.h"

namespace tw {

// A table of the package does not hold together; the message says which entry.
struct TableError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bytes of every buffer, by space and index.
struct BufferSizes {
  std::vector<int64_t> of[TW_SPACE_COUNT];
};

// Throws TableError unless kernels, buffers and offsets of every step exist and every buffer belongs to a step.
void check_program(const tw_program &table, const char *name, bool is_prepack, int64_t kernel_count,
                   const BufferSizes &sizes);

// Throws TableError unless every update is of an output and an input that are as long, and none has two.
void check_updates(const std::vector<tw_update> &updates, const BufferSizes &sizes);

}  // namespace tw
