// Links relocatable x86-64 ELF objects into this process.
#pragma once
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "abi.h"

namespace tw {

// An object was refused; the message names the kernel, the rule and what was found.
struct LoadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The code of all kernels of one package, in one mapping that lives as long as this.
class KernelCode {
 public:
  KernelCode(const tw_object *objects, int64_t count);
  ~KernelCode();
  KernelCode(const KernelCode &) = delete;
  KernelCode &operator=(const KernelCode &) = delete;

  tw_kernel_fn entry(int64_t kernel) const { return entries_[kernel]; }
  uint64_t mapped_bytes() const { return size_; }

 private:
  char *base_ = nullptr;
  uint64_t size_ = 0;
  std::vector<tw_kernel_fn> entries_;
};

// Address of a function or object of libc, libm or this library's own builtins; nullptr when unknown.
void *external_symbol(const char *name);

// Conversions that LLVM calls where the CPU lacks them; nullptr when `name` is none of them.
void *builtin_symbol(const char *name);

// What kernels of an emulated GPU call; nullptr when `name` is none of them.
void *emulator_symbol(const char *name);

}  // namespace tw
