// Fibers: stacks from slabs, and the switch between them. One fiber carries one emulated GPU thread.
#pragma once
#include <cstddef>
#include <vector>

namespace tw::emulator {

constexpr size_t kStackBytes = 128 << 10;

// Whether this build can switch fibers: the switch is written for x86-64 alone.
bool can_switch_fibers();

// Saves the caller's state through `save` and continues at `load`, a state saved before or made by `new_fiber`.
void switch_fiber(void **save, void *load);

// The state of a fiber that will call `entry`, which must not return, on the stack that ends at `top`.
void *new_fiber(char *top, void (*entry)());

// Stacks of one OS thread. They are never unmapped before the pool is: a stack is reused as soon as it is given back.
class StackPool {
 public:
  StackPool() = default;
  StackPool(const StackPool &) = delete;
  StackPool &operator=(const StackPool &) = delete;
  ~StackPool();

  // The end of a stack of kStackBytes; throws std::bad_alloc.
  char *take();
  void give(char *top) { free_.push_back(top); }

  // Whether what ran on a stack has stayed inside of it.
  static bool is_intact(const char *top);

 private:
  std::vector<char *> free_;
  std::vector<void *> slabs_;
};

}  // namespace tw::emulator
