// Loading and launching of GPU kernels.
#include "cuda_kernel.h"

#include <utility>

namespace tw::cuda {

namespace {

constexpr unsigned kPortableCluster = 8;
constexpr int kOverlappingMajor = 9;              // the first compute capability whose kernels can start early
constexpr unsigned kSharedBytesOfAll = 48 << 10;  // more is granted only to kernels that ask
constexpr size_t kLogBytes = 8192, kShownLogBytes = 1500;

// The driver takes PTX as a C string, and cubins of any alignment from memory of ours.
int load_image(const Driver &driver, Module *module, const char *image, uint64_t bytes, std::string &log) {
  std::string copy(image, bytes);
  log.assign(kLogBytes, '\0');
  int options[] = {kErrorLog, kErrorLogBytes};
  void *values[] = {log.data(), reinterpret_cast<void *>(kLogBytes)};
  int code = driver.module_load(module, copy.c_str(), 2, options, values);
  log.resize(log.find('\0') == std::string::npos ? kLogBytes : log.find('\0'));
  if (log.size() > kShownLogBytes) log.resize(kShownLogBytes);
  return code;
}

}  // namespace

Kernel::Kernel(const Device &device, const tw_cuda_kernel &table)
    : driver_(&device.driver), name_(table.name), grid_(table.grid), block_(table.block), cluster_(table.cluster),
      shared_bytes_(table.shared_bytes), is_cooperative_(table.cooperative != 0),
      overlaps_(table.overlaps && device.attribute(kCapabilityMajor) >= kOverlappingMajor) {
  auto refuse = [&](const std::string &what) { throw TableError("kernel `" + name_ + "`: " + what); };
  if (cluster_ > 1 && !device.attribute(kClusterLaunch))
    refuse("it runs in clusters of " + std::to_string(cluster_) + " blocks, which this device has none of");
  if (is_cooperative_ && !device.attribute(kCooperativeLaunch))
    refuse("it needs cooperative launches, which this device has none of");
  const int most = device.attribute(kSharedBytesOptIn);
  if (table.shared_bytes > most)
    refuse("it needs " + std::to_string(shared_bytes_) + " B of shared memory, this device has " +
           std::to_string(most) + " B");
  try {
    load(table);
    prepare(device);
  } catch (...) {
    if (module_) driver_->module_unload(module_);
    throw;
  }
}

Kernel::Kernel(Kernel &&other) noexcept
    : driver_(other.driver_), name_(std::move(other.name_)), module_(std::exchange(other.module_, nullptr)),
      function_(other.function_), grid_(other.grid_), block_(other.block_), cluster_(other.cluster_),
      shared_bytes_(other.shared_bytes_), is_cooperative_(other.is_cooperative_), overlaps_(other.overlaps_),
      resources_(other.resources_) {}

Kernel::~Kernel() {
  if (module_) driver_->module_unload(module_);
}

void Kernel::load(const tw_cuda_kernel &table) {
  const std::string who = "kernel `" + name_ + "`: ";
  std::string log;
  int code = load_image(*driver_, &module_, table.image, table.image_bytes, log);
  if (code != kSuccess && table.ptx && (code == kNoBinaryForGpu || code == kInvalidImage || code == kUnsupportedPtx)) {
    module_ = nullptr;
    code = load_image(*driver_, &module_, table.ptx, table.ptx_bytes, log);
    resources_.is_from_ptx = 1;
  }
  if (code != kSuccess) {
    module_ = nullptr;
    driver_->fail(code, who + "the driver does not load it" + (log.empty() ? "" : ", saying `" + log + "`"));
  }
  if (int missing = driver_->module_function(&function_, module_, table.symbol))
    driver_->fail(missing, who + "looking for its function `" + table.symbol + "`");
}

void Kernel::prepare(const Device &device) {
  const std::string who = "kernel `" + name_ + "`: ";
  auto set = [&](FunctionAttribute which, unsigned value, const std::string &what) {
    if (int code = driver_->function_set(function_, which, int(value))) driver_->fail(code, who + what);
  };
  auto get = [&](FunctionAttribute which) {
    int value = 0;
    if (int code = driver_->function_attribute(&value, which, function_))
      driver_->fail(code, who + "asking for its resources");
    return value;
  };
  resources_.registers = get(kRegisters);
  resources_.local_bytes = get(kLocalBytes);
  resources_.shared_bytes = get(kStaticSharedBytes);
  if (shared_bytes_ + unsigned(resources_.shared_bytes) > kSharedBytesOfAll)
    set(kDynamicSharedBytes, shared_bytes_, "asking for " + std::to_string(shared_bytes_) + " B of shared memory");
  if (cluster_ > kPortableCluster)
    set(kNonPortableClusters, 1, "asking for clusters of " + std::to_string(cluster_) + " blocks");
  if (is_cooperative_) {
    int blocks = 0;
    if (int code = driver_->blocks_per_core(&blocks, function_, int(block_), shared_bytes_))
      driver_->fail(code, who + "asking how many of its blocks run at once");
    const int64_t most = int64_t(blocks) * device.attribute(kMultiprocessors);
    if (grid_ > most)
      throw TableError(who + "its " + std::to_string(grid_) + " blocks must run at once, this device runs " +
                       std::to_string(most) + " of them");
  }
}

void Kernel::launch(Stream stream, void **params, bool is_early) const {
  LaunchAttribute attributes[3] = {};
  LaunchConfig config{{grid_, 1, 1}, {block_, 1, 1}, shared_bytes_, stream, attributes, 0};
  if (cluster_ > 1) {
    LaunchAttribute &one = attributes[config.attribute_count++];
    one.id = kClusterDimension;
    one.value.cluster = {cluster_, 1, 1};
  }
  if (is_cooperative_) {
    LaunchAttribute &one = attributes[config.attribute_count++];
    one.id = kCooperative;
    one.value.cooperative = 1;
  }
  if (is_early) {
    LaunchAttribute &one = attributes[config.attribute_count++];
    one.id = kProgrammaticSerialization;
    one.value.programmatic_serialization = 1;
  }
  driver_->check(driver_->launch(&config, function_, params, nullptr), "launching it");
}

NodeParams Kernel::node(void **params) const {
  return {function_, {grid_, 1, 1}, {block_, 1, 1}, shared_bytes_, params, nullptr, nullptr, nullptr};
}

TensorMap encode(const Driver &driver, const tw_cuda_tensor_map &table, Address address) {
  TensorMap map;
  const int swizzle = table.swizzle_bytes == 0 ? 0 : table.swizzle_bytes == 32 ? 1 : table.swizzle_bytes == 64 ? 2 : 3;
  // What lies outside of the tensor reads as zeros.
  const int is_interleaved = 0, fills_with_nan = 0;
  driver.check(driver.encode_tiled(&map, table.type, uint32_t(table.rank), reinterpret_cast<void *>(address),
                                   table.shape, table.strides_bytes, table.box, table.element_strides, is_interleaved,
                                   swizzle, kL2_256B, fills_with_nan),
               "encoding a tensor map");
  return map;
}

}  // namespace tw::cuda
