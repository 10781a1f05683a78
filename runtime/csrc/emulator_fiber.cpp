// Fibers for x86-64 System V: only callee-saved registers and the stack pointer belong to a suspended fiber.
#include "emulator_fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace tw::emulator {
namespace {

constexpr size_t kStacksPerSlab = 256;
// Equal frames of different fibers would all fall into the same cache sets: each stack starts some lines lower.
constexpr size_t kColours = 32, kColourBytes = 192;
// At the bottom of every stack. Pages without access would be safer, but split the mapping into too many.
constexpr uint64_t kBottomMark = 0x7477656d756c6174;

uint64_t *bottom_of(const char *top) {
  return reinterpret_cast<uint64_t *>((reinterpret_cast<uint64_t>(top) - 1) & ~uint64_t(kStackBytes - 1));
}

}  // namespace

bool StackPool::is_intact(const char *top) { return *bottom_of(top) == kBottomMark; }

StackPool::~StackPool() {
  for (void *slab : slabs_) munmap(slab, kStackBytes * (kStacksPerSlab + 1));
}

char *StackPool::take() {
  if (free_.empty()) {
    // Pages cost nothing until they are touched; one mapping per slab keeps far from the system's limit of mappings.
    void *slab = mmap(nullptr, kStackBytes * (kStacksPerSlab + 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) throw std::bad_alloc();
    slabs_.push_back(slab);
    char *first = reinterpret_cast<char *>(bottom_of(static_cast<char *>(slab) + kStackBytes));
    for (size_t i = kStacksPerSlab; i-- > 0;) {
      free_.push_back(first + (i + 1) * kStackBytes - (i % kColours) * kColourBytes);
      *bottom_of(free_.back()) = kBottomMark;
    }
  }
  char *top = free_.back();
  free_.pop_back();
  return top;
}

#if defined(__x86_64__)

extern "C" void tw_switch_fiber(void **save, void *load);

asm(R"(
.text
.globl tw_switch_fiber
.hidden tw_switch_fiber
.type tw_switch_fiber, @function
tw_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tw_switch_fiber, .-tw_switch_fiber
)");

bool can_switch_fibers() { return true; }

void switch_fiber(void **save, void *load) { tw_switch_fiber(save, load); }

void *new_fiber(char *top, void (*entry)()) {
  // As if `entry` had been called: 8 bytes below a multiple of 16, below six saved registers that do not matter.
  auto *frame = reinterpret_cast<uint64_t *>(top) - 4;
  frame[0] = reinterpret_cast<uint64_t>(entry);
  return frame - 6;
}

#else

bool can_switch_fibers() { return false; }
void switch_fiber(void **, void *) { std::abort(); }
void *new_fiber(char *, void (*)()) { return nullptr; }

#endif

}  // namespace tw::emulator
