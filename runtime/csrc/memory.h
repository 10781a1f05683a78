// Page-backed blocks: 64-byte aligned, and on huge pages when large.
#pragma once
#include <cstdint>
#include <utility>

namespace tw {

constexpr uint64_t kHugePage = 2u << 20;

// Zero-filled memory of `bytes`, or nullptr; release with `release_pages(p, bytes)`.
void *reserve_pages(uint64_t bytes);
void release_pages(void *p, uint64_t bytes);

// A block that owns its pages; `data` is nullptr when empty or when the allocation failed.
class Block {
 public:
  Block() = default;
  explicit Block(uint64_t bytes) : data_(reserve_pages(bytes)), bytes_(data_ ? bytes : 0) {}
  Block(Block &&other) noexcept { swap(other); }
  Block &operator=(Block &&other) noexcept {
    swap(other);
    return *this;
  }
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;
  ~Block() { release_pages(data_, bytes_); }

  char *data() const { return static_cast<char *>(data_); }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(Block &other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void *data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace tw
