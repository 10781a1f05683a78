// A GPU kernel loaded into a device, and one launch of it.
#pragma once
#include <string>

#include "cuda_abi.h"
#include "cuda_memory.h"
#include "tables.h"

namespace tw::cuda {

class Kernel {
 public:
  // Throws TableError when the device cannot run it, Error with the driver's log when it takes neither image.
  // The context is current.
  Kernel(const Device &device, const tw_cuda_kernel &table);
  Kernel(Kernel &&other) noexcept;
  Kernel &operator=(Kernel &&) = delete;
  ~Kernel();

  const std::string &name() const { return name_; }
  const tw_cuda_resources &resources() const { return resources_; }
  // Whether it can be launched before the kernel before it has ended.
  bool overlaps() const { return overlaps_; }
  // With `is_early` it may start as soon as the kernel before it allows: only for one that overlaps.
  void launch(Stream stream, void **params, bool is_early = false) const;
  // The same launch as parameters of a graph's node.
  NodeParams node(void **params) const;

 private:
  void load(const tw_cuda_kernel &table);
  void prepare(const Device &device);

  const Driver *driver_;
  std::string name_;
  Module module_ = nullptr;
  Function function_ = nullptr;
  unsigned grid_, block_, cluster_, shared_bytes_;
  bool is_cooperative_, overlaps_;
  tw_cuda_resources resources_{};
};

// The tensor map of `table` over memory at `address`.
TensorMap encode(const Driver &driver, const tw_cuda_tensor_map &table, Address address);

}  // namespace tw::cuda
