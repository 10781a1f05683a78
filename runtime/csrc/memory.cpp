// Page-backed blocks over mmap.
#include "memory.h"

#include <sys/mman.h>

#include "abi.h"

namespace tw {

namespace {
constexpr uint64_t kPage = 4096;
// Far above any machine, far below overflow: sizes from a damaged artifact stop here.
constexpr uint64_t kLargestBlock = 1ull << 46;
uint64_t mapped_bytes(uint64_t bytes) {
  uint64_t unit = bytes >= kHugePage ? kHugePage : kPage;
  return (bytes + unit - 1) / unit * unit;
}
}  // namespace

void *reserve_pages(uint64_t bytes) {
  if (bytes == 0 || bytes > kLargestBlock) return nullptr;
  uint64_t size = mapped_bytes(bytes);
  bool huge = bytes >= kHugePage;
  uint64_t padded = huge ? size + kHugePage : size;
  void *p = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (!huge) return p;
  uint64_t start = reinterpret_cast<uint64_t>(p);
  uint64_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > start) munmap(p, aligned - start);
  if (start + padded > aligned + size)
    munmap(reinterpret_cast<void *>(aligned + size), start + padded - aligned - size);
  void *result = reinterpret_cast<void *>(aligned);
  madvise(result, size, MADV_HUGEPAGE);
  return result;
}

void release_pages(void *p, uint64_t bytes) {
  if (p) munmap(p, mapped_bytes(bytes));
}

}  // namespace tw

TW_EXPORT void *tw_reserve(uint64_t bytes) { return tw::reserve_pages(bytes); }
TW_EXPORT void tw_release(void *p, uint64_t bytes) { tw::release_pages(p, bytes); }
