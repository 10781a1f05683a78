// Memory of a device: blocks from its pool, and host memory that its kernels write to.
#pragma once
#include <map>
#include <mutex>
#include <utility>

#include "cuda_driver.h"

namespace tw::cuda {

// Every block of the pool starts at a multiple of this, as the driver's do.
constexpr uint64_t kBlockAlignment = 256;

inline uint64_t round_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

// One device of this process: its primary context, which PyTorch shares, a stream of our own, and its memory.
//
// Memory comes from the driver's stream-ordered pool where the device has one. Elsewhere freed blocks are kept for
// the next block of the same size, and go back to the driver when it has no other memory left or when there are too
// many of them: each cuMemFree waits for the whole device.
class Device {
 public:
  Device(const Driver &driver, int index);
  ~Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  int attribute(DeviceAttribute which) const;
  // At least one byte, whose address is a multiple of kBlockAlignment. The caller has made the context current.
  Address allocate(uint64_t bytes);
  // Nothing that was launched may use the block any more.
  void free(Address address, uint64_t bytes);

  const Driver &driver;
  const int index;
  int handle = 0;
  Context context = nullptr;
  Stream stream = nullptr;  // for loading, host calls and captures

 private:
  void trim();

  std::mutex lock_;
  bool has_pool_ = false;
  std::multimap<uint64_t, Address> kept_;
  uint64_t kept_bytes_ = 0;
};

// A block of device memory that frees itself.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(Device &device, uint64_t bytes) : device_(&device), address_(device.allocate(bytes)), bytes_(bytes) {}
  DeviceBlock(DeviceBlock &&other) noexcept { swap(other); }
  DeviceBlock &operator=(DeviceBlock &&other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBlock() {
    if (device_) device_->free(address_, bytes_);
  }

  Address address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBlock &other) {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
  }
  Device *device_ = nullptr;
  Address address_ = 0;
  uint64_t bytes_ = 0;
};

// Zeroed i32 words in host memory that kernels write and the host reads without a copy.
class StatusWords {
 public:
  StatusWords() = default;
  StatusWords(const Driver &driver, size_t count);
  StatusWords(StatusWords &&other) noexcept { swap(other); }
  StatusWords &operator=(StatusWords &&other) noexcept {
    swap(other);
    return *this;
  }
  ~StatusWords() {
    if (words_) driver_->host_free(words_);
  }

  Address address(size_t number) const { return device_ + number * sizeof(int32_t); }
  // The first step that failed and its status, both then cleared; -1 and 0 when none did.
  std::pair<int64_t, int32_t> take();

 private:
  void swap(StatusWords &other) {
    std::swap(driver_, other.driver_);
    std::swap(words_, other.words_);
    std::swap(device_, other.device_);
    std::swap(count_, other.count_);
  }
  const Driver *driver_ = nullptr;
  int32_t *words_ = nullptr;
  Address device_ = 0;
  size_t count_ = 0;
};

}  // namespace tw::cuda
