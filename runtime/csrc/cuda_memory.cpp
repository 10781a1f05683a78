// Memory of a device.
#include "cuda_memory.h"

#include <algorithm>
#include <cstring>

namespace tw::cuda {

namespace {
// What a device without a pool of its own keeps of freed blocks.
constexpr uint64_t kMostKeptBytes = 256ull << 20;
}  // namespace

Device::Device(const Driver &driver, int index) : driver(driver), index(index) {
  driver.check(driver.device_get(&handle, index), "finding the device");
  driver.check(driver.context_retain(&context, handle), "opening the device's primary context");
  try {
    Current current(driver, context);
    has_pool_ = attribute(kMemoryPools) != 0;
    driver.check(driver.stream_create(&stream, kNonBlocking), "making a stream");
  } catch (...) {
    driver.context_release(handle);
    throw;
  }
}

Device::~Device() {
  if (is_forked()) return;
  // Errors are of no use any more: the process may be ending and the driver with it.
  if (driver.context_push(context) == kSuccess) {
    driver.stream_synchronize(stream);
    trim();
    driver.stream_destroy(stream);
    Context popped;
    driver.context_pop(&popped);
  }
  driver.context_release(handle);
}

int Device::attribute(DeviceAttribute which) const {
  int value = 0;
  driver.check(driver.device_attribute(&value, which, handle), "asking for a property of the device");
  return value;
}

Address Device::allocate(uint64_t bytes) {
  bytes = round_up(std::max<uint64_t>(bytes, 1), kBlockAlignment);
  const std::string what = "allocating " + std::to_string(bytes) + " B of device memory";
  Address found = 0;
  if (has_pool_) {
    driver.check(driver.memory_allocate_async(&found, bytes, stream), what.c_str());
    // From now on every stream may use it.
    if (int code = driver.stream_synchronize(stream)) {
      driver.memory_free_async(found, stream);
      driver.fail(code, what);
    }
    return found;
  }
  std::lock_guard guard(lock_);
  auto kept = kept_.find(bytes);
  if (kept != kept_.end()) {
    found = kept->second;
    kept_.erase(kept);
    kept_bytes_ -= bytes;
    return found;
  }
  int code = driver.memory_allocate(&found, bytes);
  if (code == kOutOfMemory && !kept_.empty()) {
    trim();
    code = driver.memory_allocate(&found, bytes);
  }
  driver.check(code, what.c_str());
  return found;
}

void Device::free(Address address, uint64_t bytes) {
  bytes = round_up(std::max<uint64_t>(bytes, 1), kBlockAlignment);
  if (has_pool_) {
    driver.memory_free_async(address, stream);
    return;
  }
  std::lock_guard guard(lock_);
  if (kept_bytes_ + bytes > kMostKeptBytes) {
    driver.memory_free(address);
    return;
  }
  kept_.emplace(bytes, address);
  kept_bytes_ += bytes;
}

void Device::trim() {
  for (const auto &block : kept_) driver.memory_free(block.second);
  kept_.clear();
  kept_bytes_ = 0;
}

StatusWords::StatusWords(const Driver &driver, size_t count) : driver_(&driver), count_(std::max<size_t>(count, 1)) {
  void *words = nullptr;
  const size_t bytes = count_ * sizeof(int32_t);
  driver.check(driver.host_allocate(&words, bytes, kPortable | kDeviceMap), "allocating status words");
  std::memset(words, 0, bytes);
  if (int code = driver.host_device_address(&device_, words, 0)) {
    driver.host_free(words);
    driver.fail(code, "mapping status words into the device");
  }
  words_ = static_cast<int32_t *>(words);
}

std::pair<int64_t, int32_t> StatusWords::take() {
  volatile int32_t *words = words_;
  std::pair<int64_t, int32_t> first{-1, 0};
  for (size_t i = 0; i < count_; ++i)
    if (int32_t status = words[i]) {
      // Later failures may be consequences of the first: they are forgotten with it.
      if (first.first < 0) first = {int64_t(i), status};
      words[i] = 0;
    }
  return first;
}

}  // namespace tw::cuda
