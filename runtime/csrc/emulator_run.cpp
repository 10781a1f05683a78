// The C functions of the emulator: loading a kernel, and running one launch of it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

#include "abi.h"
#include "elf_loader.h"
#include "emulator_calls.h"
#include "emulator_numbers.h"
#include "emulator_shadow.h"

namespace tw {

void *emulator_symbol(const char *name) {
  static const struct {
    const char *name;
    void *address;
  } kSymbols[] = {
#define SYMBOL(function) {#function, reinterpret_cast<void *>(&function)}
      SYMBOL(twe_index),
      SYMBOL(twe_load_shared),
      SYMBOL(twe_store_shared),
      SYMBOL(twe_load_global),
      SYMBOL(twe_store_global),
      SYMBOL(twe_atomic_shared),
      SYMBOL(twe_atomic_global),
      SYMBOL(twe_barrier),
      SYMBOL(twe_named_barrier),
      SYMBOL(twe_named_barrier_arrive),
      SYMBOL(twe_cluster_sync),
      SYMBOL(twe_cluster_rank),
      SYMBOL(twe_shuffle),
      SYMBOL(twe_grid_dependency_wait),
      SYMBOL(twe_thread_fence),
      SYMBOL(twe_nanosleep),
      SYMBOL(twe_load_acquire),
      SYMBOL(twe_store_release),
      SYMBOL(twe_atomic_add),
      SYMBOL(twe_copy_async),
      SYMBOL(twe_copy_commit),
      SYMBOL(twe_copy_wait),
      SYMBOL(twe_mbarrier_init),
      SYMBOL(twe_mbarrier_expect_tx),
      SYMBOL(twe_mbarrier_arrive),
      SYMBOL(twe_mbarrier_arrive_cluster),
      SYMBOL(twe_mbarrier_wait),
      SYMBOL(twe_fence_mbarrier_init),
      SYMBOL(twe_fence_async),
      SYMBOL(twe_tma_load),
      SYMBOL(twe_tma_store),
      SYMBOL(twe_bulk_commit),
      SYMBOL(twe_bulk_wait),
      SYMBOL(twe_ldmatrix),
      SYMBOL(twe_stmatrix),
      SYMBOL(twe_mma),
      SYMBOL(twe_mma_m8n8k4),
      SYMBOL(twe_wgmma),
      SYMBOL(twe_wgmma_wait),
#undef SYMBOL
  };
  if (std::strncmp(name, "twe_", 4)) return nullptr;
  for (const auto &symbol : kSymbols)
    if (!std::strcmp(symbol.name, name)) return symbol.address;
  return nullptr;
}

namespace emulator {
namespace {

// A kernel's entry as the loader has it, as what it is in an emulated kernel.
template <class Entry>
Entry entry_of(void *code) {
  void *address = reinterpret_cast<void *>(static_cast<KernelCode *>(code)->entry(0));
  return reinterpret_cast<Entry>(address);
}

void write_error(char *error, uint64_t size, const char *message) {
  if (size) std::snprintf(error, size, "%s", message);
}

// More launches at once than there are units of blocks would have nothing to do. What a checked launch remembers of
// global memory belongs to one OS thread.
int64_t workers(const Launch &launch) {
  if (launch.checked) return 1;
  return std::min<int64_t>(std::max(launch.table.workers, 1), int64_t(launch.units.size()));
}

void run(const tw_emulation &table, Kernel kernel) {
  Launch launch(table, kernel);
  auto work = [&launch] {
    Scheduler scheduler(launch);
    scheduler.run();
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < workers(launch); ++i) others.emplace_back(work);
  work();
  for (std::thread &other : others) other.join();
}

}  // namespace
}  // namespace emulator
}  // namespace tw

// Loads the object code of an emulated kernel; nullptr with a message in `error` when it is refused.
TW_EXPORT void *tw_emulator_load(const tw_object *object, char *error, uint64_t error_bytes) {
  try {
    if (!tw::emulator::can_switch_fibers())
      throw tw::LoadError("GPUs are emulated on x86-64 only; run the kernels on a GPU, or on an x86-64 machine");
    if (!tw::emulator::has_instructions())
      throw tw::LoadError("GPUs are emulated on x86-64-v3 CPUs only; this one lacks AVX2, FMA or F16C");
    return new tw::KernelCode(object, 1);
  } catch (const std::exception &caught) {
    tw::emulator::write_error(error, error_bytes, caught.what());
  }
  return nullptr;
}

TW_EXPORT void tw_emulator_unload(void *code) { delete static_cast<tw::KernelCode *>(code); }

// The JSON text that the compiler put beside the code.
TW_EXPORT const char *tw_emulator_describe(void *code) {
  return tw::emulator::entry_of<const char *(*)(void **)>(code)(nullptr);
}

// Runs one launch; 0, or -1 with a message in `error` when memory ran out. Findings are in the table.
TW_EXPORT int64_t tw_emulator_run(void *code, tw_emulation *table, char *error, uint64_t error_bytes) {
  table->finding_count = 0;
  try {
    tw::emulator::run(*table, tw::emulator::entry_of<tw::emulator::Kernel>(code));
    return 0;
  } catch (const std::exception &caught) {
    tw::emulator::write_error(error, error_bytes, caught.what());
  }
  return -1;
}
