// The CUDA driver, found when it is first asked for.
#include "cuda_driver.h"

#include <map>
#include <memory>
#include <mutex>

#include <dlfcn.h>
#include <pthread.h>

namespace tw::cuda {

namespace {

// cuTensorMapEncodeTiled and the second version of cuGraphExecKernelNodeSetParams came with it.
constexpr int kOldestVersion = 12000;

bool forked = false;

void note_fork() { forked = true; }

std::unique_ptr<Driver> load(const std::string &name) {
  void *library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(kNotFound, "no NVIDIA driver: " + std::string(dlerror()));
  auto driver = std::make_unique<Driver>();
  const char *missing = nullptr;
#define TW_CUDA_FIND(member, symbol, ...)                                                 \
  driver->member = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, symbol)); \
  if (!driver->member && !missing) missing = symbol;
  TW_CUDA_FUNCTIONS(TW_CUDA_FIND)
#undef TW_CUDA_FIND
  const bool tells_version = driver->driver_version && driver->driver_version(&driver->version) == kSuccess;
  if (tells_version && driver->version < kOldestVersion)
    throw Error(kNotFound, "the NVIDIA driver is made for CUDA " + std::to_string(driver->version / 1000) + "." +
                               std::to_string(driver->version % 1000 / 10) + ", at least 12.0 is needed; update it");
  if (missing) throw Error(kNotFound, name + " has no function " + missing + "; update the NVIDIA driver");
  driver->check(driver->init(0), "initialising the NVIDIA driver");
  return driver;
}

}  // namespace

std::string Driver::text(int code) const {
  const char *name = nullptr, *meaning = nullptr;
  if (get_error_name(code, &name) != kSuccess || !name) return "error " + std::to_string(code);
  std::string found = name;
  if (get_error_string(code, &meaning) == kSuccess && meaning) found += std::string(" (") + meaning + ")";
  return found;
}

void Driver::fail(int code, const std::string &what) const {
  std::string message = what + ": " + text(code);
  if (is_sticky(code))
    message +=
        "; an earlier kernel may be at fault, which TILEWRIGHT_CUDA_SYNC=1 would name, and this process can use the "
        "device no more";
  throw Error(code, message);
}

bool is_forked() { return forked; }

const Driver &Driver::open(const std::string &name) {
  static std::mutex lock;
  static std::map<std::string, std::unique_ptr<Driver>> drivers;
  std::lock_guard guard(lock);
  std::unique_ptr<Driver> &found = drivers[name];
  if (!found) {
    if (drivers.size() == 1) pthread_atfork(nullptr, nullptr, note_fork);
    found = load(name);
  }
  return *found;
}

}  // namespace tw::cuda
