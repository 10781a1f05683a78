// The functions of cuda_abi.h: every exception becomes a status and a failure that the calling thread can ask for.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "cuda_executable.h"

namespace tw::cuda {
namespace {

struct Failure {
  std::string message;
  tw_cuda_failure data{};
};
thread_local Failure failure;

tw_cuda_status fail(tw_cuda_status status, const std::string &message, int driver_code = 0, int64_t step = -1) {
  failure.message = message;
  failure.data = {nullptr, step, 0, 0, 0, driver_code};
  return status;
}

template <class Body>
tw_cuda_status guarded(const Executable *executable, Body body) {
  try {
    if (is_forked())
      return fail(TW_CUDA_ARGUMENT, "this process was forked from one that used CUDA; start it with `spawn` instead");
    body();
    return TW_CUDA_OK;
  } catch (const AssertFailure &caught) {
    fail(TW_CUDA_ASSERT, "", 0, caught.step);
    failure.data.status = caught.status;
    failure.data.is_prepack = caught.is_prepack;
    failure.data.is_late = caught.is_late;
    return TW_CUDA_ASSERT;
  } catch (const StepError &caught) {
    fail(TW_CUDA_DRIVER, caught.what(), caught.code, caught.step);
    failure.data.is_prepack = executable && executable->in_prepack();
    return TW_CUDA_DRIVER;
  } catch (const Error &caught) {
    return fail(caught.code == kOutOfMemory ? TW_CUDA_MEMORY : TW_CUDA_DRIVER, caught.what(), caught.code);
  } catch (const TableError &caught) {
    return fail(TW_CUDA_TABLE, caught.what());
  } catch (const ArgumentFailure &caught) {
    return fail(TW_CUDA_ARGUMENT, caught.what());
  } catch (const std::bad_alloc &) {
    return fail(TW_CUDA_MEMORY, "out of memory");
  } catch (const std::exception &caught) {
    return fail(TW_CUDA_TABLE, caught.what());
  }
}

template <class Body>
tw_cuda_status on(void *executable, Body body) {
  auto *self = static_cast<Executable *>(executable);
  return guarded(self, [&] { body(*self); });
}

// A device is open while anything of it is in use.
std::shared_ptr<Device> open_device(const Driver &driver, int index) {
  static std::mutex lock;
  static std::map<std::pair<const Driver *, int>, std::weak_ptr<Device>> devices;
  std::lock_guard guard(lock);
  std::weak_ptr<Device> &known = devices[{&driver, index}];
  std::shared_ptr<Device> found = known.lock();
  if (!found) known = found = std::make_shared<Device>(driver, index);
  return found;
}

// Device memory on its own, for callers without a library that has some.
struct Memory {
  std::shared_ptr<Device> device;
  DeviceBlock block;
  ~Memory() {
    if (is_forked() || device->driver.context_push(device->context) != kSuccess) {
      new DeviceBlock(std::move(block));  // nothing is left that could be freed
      return;
    }
    block = DeviceBlock();
    Context popped;
    device->driver.context_pop(&popped);
  }
};

void describe(const Driver &driver, int index, tw_cuda_device &to) {
  int handle = 0;
  size_t bytes = 0;
  auto attribute = [&](DeviceAttribute which) {
    int value = 0;
    driver.check(driver.device_attribute(&value, which, handle), "asking for a property of a device");
    return value;
  };
  driver.check(driver.device_get(&handle, index), "finding a device");
  driver.check(driver.device_name(to.name, sizeof to.name, handle), "asking for a device's name");
  driver.check(driver.device_memory(&bytes, handle), "asking for a device's memory");
  to.name[sizeof to.name - 1] = 0;
  to.major = attribute(kCapabilityMajor);
  to.minor = attribute(kCapabilityMinor);
  to.multiprocessors = attribute(kMultiprocessors);
  to.shared_bytes = uint64_t(attribute(kSharedBytesOptIn));
  to.memory_bytes = bytes;
  to.driver_version = driver.version;
}

}  // namespace
}  // namespace tw::cuda

using namespace tw::cuda;

TW_EXPORT int tw_cuda_abi_version() { return TW_CUDA_ABI_VERSION; }

TW_EXPORT void tw_cuda_last_failure(tw_cuda_failure *to) {
  failure.data.message = failure.message.c_str();
  *to = failure.data;
}

// Describes at most `most` of the devices that the driver in `library` has; `count` receives how many there are.
TW_EXPORT int tw_cuda_devices(const char *library, tw_cuda_device *to, int most, int *count) {
  return guarded(nullptr, [&] {
    const Driver &driver = Driver::open(library);
    driver.check(driver.device_count(count), "counting devices");
    for (int i = 0; i < std::min(*count, most); ++i) describe(driver, i, to[i]);
  });
}

// Loads a package into a device; with `is_synchronous` every step is waited for, so that faults name their kernel;
// else, with `overlaps`, kernels that can start before the one before them has ended do.
TW_EXPORT int tw_cuda_create(const char *library, int device, const tw_cuda_package *package, int is_synchronous,
                             int overlaps, void **executable) {
  return guarded(nullptr, [&] {
    auto made = std::make_unique<Executable>(open_device(Driver::open(library), device), is_synchronous != 0,
                                             overlaps != 0);
    made->load(*package);
    *executable = made.release();
  });
}

TW_EXPORT void tw_cuda_destroy(void *executable) { delete static_cast<Executable *>(executable); }

// Binds weights and runs prepack on `stream`, or on a stream of the executable's own.
TW_EXPORT int tw_cuda_bind(void *executable, const tw_cuda_weight *weights, void *stream, int has_stream) {
  return on(executable, [&](Executable &self) {
    self.bind(weights, has_stream ? static_cast<Stream>(stream) : self.own_stream());
  });
}

TW_EXPORT int tw_cuda_run(void *executable, void *const *inputs, void *const *outputs, void *stream, int graph_mode) {
  return on(executable, [&](Executable &self) {
    self.run(inputs, outputs, static_cast<Stream>(stream), tw_cuda_graph_mode(graph_mode));
  });
}

TW_EXPORT int tw_cuda_run_host(void *executable, void *const *inputs, void *const *outputs, int graph_mode) {
  return on(executable,
            [&](Executable &self) { self.run_host(inputs, outputs, tw_cuda_graph_mode(graph_mode)); });
}

TW_EXPORT const char *tw_cuda_graph_error(void *executable) {
  return static_cast<Executable *>(executable)->graph_error().c_str();
}

TW_EXPORT const char *tw_cuda_overlap_error(void *executable) {
  return static_cast<Executable *>(executable)->overlap_error().c_str();
}

TW_EXPORT int tw_cuda_synchronize(void *executable) {
  return on(executable, [](Executable &self) { self.synchronize(); });
}

TW_EXPORT int tw_cuda_profile(void *executable, void *const *inputs, int64_t repeats, double *us) {
  return on(executable, [&](Executable &self) { self.profile(inputs, repeats, us); });
}

TW_EXPORT int tw_cuda_time(void *executable, void *const *inputs, int64_t set_count, void *const *outputs,
                           int64_t launches, int64_t rounds, double *us) {
  return on(executable,
            [&](Executable &self) { self.time(inputs, set_count, outputs, launches, rounds, us); });
}

TW_EXPORT int tw_cuda_kernel_resources(void *executable, int64_t kernel, tw_cuda_resources *to) {
  return on(executable, [&](Executable &self) { *to = self.resources(kernel); });
}

TW_EXPORT int tw_cuda_memory_new(const char *library, int device, uint64_t bytes, void **memory, uint64_t *address) {
  return guarded(nullptr, [&] {
    auto made = std::make_unique<Memory>();
    made->device = open_device(Driver::open(library), device);
    Current current(made->device->driver, made->device->context);
    made->block = DeviceBlock(*made->device, bytes);
    *address = made->block.address();
    *memory = made.release();
  });
}

TW_EXPORT void tw_cuda_memory_delete(void *memory) { delete static_cast<Memory *>(memory); }

// Copies between host memory and a block, from its start, and waits.
TW_EXPORT int tw_cuda_memory_copy(void *memory, void *host, uint64_t bytes, int is_to_device) {
  return guarded(nullptr, [&] {
    auto *self = static_cast<Memory *>(memory);
    const Driver &driver = self->device->driver;
    Current current(driver, self->device->context);
    if (!bytes) return;
    const Stream stream = self->device->stream;
    try {
      if (is_to_device)
        driver.check(driver.copy_to_device(self->block.address(), host, bytes, stream), "copying to the device");
      else
        driver.check(driver.copy_to_host(host, self->block.address(), bytes, stream), "copying from the device");
      driver.check(driver.stream_synchronize(stream), "waiting for a copy");
    } catch (...) {
      driver.stream_synchronize(stream);  // nothing touches the caller's memory after this
      throw;
    }
  });
}
