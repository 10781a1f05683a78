// Execution of a compiled model: buffer tables resolved once, then steps in order, their rTasks on the pool.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "abi.h"
#include "elf_loader.h"
#include "memory.h"
#include "pool.h"
#include "tables.h"

namespace tw {
namespace {

// Steps whose rTasks take less than this all together stay on the calling thread: handing them over costs about
// a microsecond.
constexpr double kTinyStep_us = 2;
// While the helpers sleep, this much work that could have been shared must pass before they are woken: waking
// costs a few microseconds of the caller and tens until the helper runs. Work of calls that follow each other while a
// helper would still be looking for more counts together.
constexpr double kWorthWaking_us = 20;
constexpr uint32_t kChunksPerThread = 4;
constexpr uint64_t kUnknown = ~0ull;
// MXCSR's FTZ and DAZ: Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 1, 10.2.3.
constexpr uint32_t kFlushDenormals = 1u << 15 | 1u << 6;

struct Step {
  tw_kernel_fn kernel;
  int64_t first_buffer;
  int64_t tasks;
  // Estimated time-stamp ticks of all rTasks on one thread.
  uint64_t serial_ticks;
};

struct Patch {
  int64_t slot;
  int32_t index;
  int64_t offset;
};

struct Program {
  std::vector<Step> steps;
  std::vector<tw_buffer_ref> refs;
  std::vector<void *> pointers;  // one per ref
  std::vector<Patch> inputs, outputs;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;  // the most that any kernel asks for
};

// Adds bits to the calling thread's MXCSR, which helpers take over, and puts the caller's back.
class ScopedMxcsr {
 public:
  explicit ScopedMxcsr(uint32_t bits) : before_(_mm_getcsr()), is_changed_((before_ & bits) != bits) {
    if (is_changed_) _mm_setcsr(before_ | bits);
  }
  ~ScopedMxcsr() {
    if (is_changed_) _mm_setcsr(before_);
  }

 private:
  const uint32_t before_;
  const bool is_changed_;
};

class Executable {
 public:
  explicit Executable(const tw_package &package);
  int64_t bind(void *const *weights, int threads);
  int64_t run(void *const *inputs, void *const *outputs, int threads, double *step_us);
  uint64_t code_bytes() const { return code_.mapped_bytes(); }

 private:
  void read(Program &program, const tw_program &table, const tw_package &package, bool is_prepack);
  void resolve(Program &program, void *const *weights, char *arena);
  int64_t execute(Program &program, int threads, double *step_us);

  ForkSafeLock lock_;
  KernelCode code_;
  std::vector<int64_t> scratch_bytes_;
  BufferSizes sizes_;
  std::vector<Block> constants_;
  Block packed_, arena_;
  int64_t packed_bytes_;
  Program main_, prepack_;
  std::vector<tw_update> updates_;
  bool is_bound_ = false;
  const uint32_t mxcsr_bits_;
};

Executable::Executable(const tw_package &package)
    : code_(package.objects, package.object_count),
      packed_bytes_(package.packed_bytes),
      mxcsr_bits_(package.flush_denormals ? kFlushDenormals : 0) {
  for (int64_t i = 0; i < package.object_count; ++i) {
    scratch_bytes_.push_back(package.objects[i].scratch_bytes);
    if (scratch_bytes_.back() < 0) throw TableError(std::string(package.objects[i].name) + ": negative scratch size");
  }
  sizes_.of[TW_INPUT].assign(package.input_bytes, package.input_bytes + package.input_count);
  sizes_.of[TW_OUTPUT].assign(package.output_bytes, package.output_bytes + package.output_count);
  sizes_.of[TW_WEIGHT].assign(package.weight_bytes, package.weight_bytes + package.weight_count);
  sizes_.of[TW_CONSTANT].assign(package.constant_bytes, package.constant_bytes + package.constant_count);
  sizes_.of[TW_PACKED] = {package.packed_bytes};
  read(main_, package.main, package, false);
  read(prepack_, package.prepack, package, true);
  updates_.assign(package.updates, package.updates + package.update_count);
  check_updates(updates_, sizes_);
  for (int64_t i = 0; i < package.constant_count; ++i) {
    Block block(std::max<int64_t>(package.constant_bytes[i], 1));
    if (!block.data()) throw std::bad_alloc();
    std::memcpy(block.data(), package.constants[i], package.constant_bytes[i]);
    constants_.push_back(std::move(block));
  }
}

void Executable::read(Program &program, const tw_program &table, const tw_package &package, bool is_prepack) {
  const std::string which = is_prepack ? "prepack" : "main";
  sizes_.of[TW_ARENA] = {table.arena_bytes};
  if (table.arena_bytes < 0 || package.packed_bytes < 0) throw TableError(which + ": negative block size");
  check_program(table, which.c_str(), is_prepack, package.object_count, sizes_);
  for (int64_t i = 0; i < table.step_count; ++i) {
    const tw_step &s = table.steps[i];
    program.steps.push_back({code_.entry(s.kernel), s.first_buffer, s.tasks, kUnknown});
    program.scratch_bytes = std::max(program.scratch_bytes, scratch_bytes_[s.kernel]);
  }
  program.refs.assign(table.buffers, table.buffers + table.buffer_count);
  program.pointers.assign(table.buffer_count, nullptr);
  program.arena_bytes = table.arena_bytes;
  for (int64_t b = 0; b < table.buffer_count; ++b) {
    const tw_buffer_ref &ref = program.refs[b];
    if (ref.space == TW_INPUT) program.inputs.push_back({b, ref.index, ref.offset});
    if (ref.space == TW_OUTPUT) program.outputs.push_back({b, ref.index, ref.offset});
  }
}

void Executable::resolve(Program &program, void *const *weights, char *arena) {
  for (size_t b = 0; b < program.refs.size(); ++b) {
    const tw_buffer_ref &ref = program.refs[b];
    char *base = nullptr;
    switch (ref.space) {
      case TW_WEIGHT: base = static_cast<char *>(weights[ref.index]); break;
      case TW_CONSTANT: base = constants_[ref.index].data(); break;
      case TW_PACKED: base = packed_.data(); break;
      case TW_ARENA: base = arena; break;
      default: continue;
    }
    program.pointers[b] = base + ref.offset;
  }
}

int64_t Executable::bind(void *const *weights, int threads) {
  lock_.lock();
  struct Unlock {
    ForkSafeLock &lock;
    ~Unlock() { lock.unlock(); }
  } unlock{lock_};
  is_bound_ = false;
  // At least one byte each, so that zero-sized tensors have an address.
  if (!packed_.data()) packed_ = Block(std::max<int64_t>(packed_bytes_, 1));
  if (!arena_.data()) arena_ = Block(std::max<int64_t>(main_.arena_bytes, 1));
  Block prepack_arena(std::max<int64_t>(prepack_.arena_bytes, 1));
  if (!packed_.data() || !arena_.data() || !prepack_arena.data()) return TW_ERROR_MEMORY;
  resolve(prepack_, weights, prepack_arena.data());
  if (int64_t status = execute(prepack_, threads, nullptr)) return status;
  resolve(main_, weights, arena_.data());
  is_bound_ = true;
  return 0;
}

int64_t Executable::run(void *const *inputs, void *const *outputs, int threads, double *step_us) {
  lock_.lock();
  int64_t status = TW_ERROR_UNBOUND;
  if (is_bound_) {
    for (const tw_update &update : updates_) {
      void *whole = outputs[update.output];
      const void *before = inputs[update.input];
      if (whole != before) std::memcpy(whole, before, sizes_.of[TW_INPUT][update.input]);
    }
    for (const Patch &p : main_.inputs) main_.pointers[p.slot] = static_cast<char *>(inputs[p.index]) + p.offset;
    for (const Patch &p : main_.outputs) main_.pointers[p.slot] = static_cast<char *>(outputs[p.index]) + p.offset;
    ScopedMxcsr mode(mxcsr_bits_);
    status = execute(main_, threads, step_us);
  }
  lock_.unlock();
  return status;
}

int64_t Executable::execute(Program &program, int threads, double *step_us) {
  if (program.steps.empty()) return 0;
  Pool &pool = Pool::instance();
  // Another thread's run owns the pool: this one proceeds alone rather than wait.
  bool is_owner = threads > 1 && pool.owner.try_lock();
  threads = is_owner ? pool.ensure(threads) : 1;
  const double per_us = ticks_per_us();
  const auto tiny = uint64_t(kTinyStep_us * per_us), worth_waking = uint64_t(kWorthWaking_us * per_us);
  const uint32_t mxcsr = _mm_getcsr();
  uint64_t unshared = 0;
  int64_t result = 0;
  void *scratch = program.scratch_bytes ? thread_scratch(program.scratch_bytes) : nullptr;
  if (program.scratch_bytes && !scratch) {
    if (is_owner) pool.owner.unlock();
    return TW_ERROR_MEMORY;
  }
  for (size_t i = 0; i < program.steps.size(); ++i) {
    Step &step = program.steps[i];
    void *const *buffers = program.pointers.data() + step.first_buffer;
    uint64_t begin = step_us ? ticks() : 0;
    bool is_shared = threads > 1 && step.tasks > 1 && step.serial_ticks > tiny;
    if (is_shared && step.serial_ticks != kUnknown && unshared < worth_waking && pool.is_asleep(threads)) {
      if (!unshared) unshared = pool.unshared_lately();
      unshared += step.serial_ticks;
      is_shared = unshared >= worth_waking;
    }
    int32_t status = 0;
    uint64_t spent = 0;
    if (is_shared) {
      int64_t chunks = std::min<int64_t>(step.tasks, int64_t(threads) * kChunksPerThread);
      if (step.serial_ticks != kUnknown)
        chunks = std::min<int64_t>(chunks, std::max<int64_t>(2, int64_t(step.serial_ticks / (tiny / 2))));
      Work work{step.kernel, buffers, step.tasks, program.scratch_bytes, uint32_t(chunks), mxcsr};
      status = pool.run(work, int(std::min<int64_t>(threads, chunks)), &spent);
    } else if (step.tasks > 0) {
      bool is_timed = threads > 1 && step.tasks > 1;
      uint64_t start = is_timed ? ticks() : 0;
      status = step.kernel(buffers, 0, step.tasks, scratch);
      if (is_timed) spent = ticks() - start;
    }
    // The least time seen, drifting up slowly: being descheduled once does not make a step look large for long.
    if (spent) {
      uint64_t known = step.serial_ticks;
      step.serial_ticks = std::min(spent, known == kUnknown ? kUnknown : known + known / 16 + 1);
    }
    if (step_us) step_us[i] = double(ticks() - begin) / per_us;
    if (status) {
      result = status < 0 ? status : int64_t(i + 1) << 32 | status;
      break;
    }
  }
  if (unshared) pool.remember_unshared(unshared < worth_waking ? unshared : 0);
  if (is_owner) pool.owner.unlock();
  return result;
}

void write_error(char *error, uint64_t size, const char *message) {
  if (size) std::snprintf(error, size, "%s", message);
}

}  // namespace
}  // namespace tw

TW_EXPORT int tw_abi_version() { return TW_ABI_VERSION; }

// Loads a package; returns nullptr with a message in `error` when an object or a table is malformed.
TW_EXPORT void *tw_create(const tw_package *package, char *error, uint64_t error_bytes) {
  try {
    return new tw::Executable(*package);
  } catch (const std::bad_alloc &) {
    tw::write_error(error, error_bytes, "out of memory");
  } catch (const std::exception &caught) {
    tw::write_error(error, error_bytes, caught.what());
  }
  return nullptr;
}

TW_EXPORT void tw_destroy(void *executable) { delete static_cast<tw::Executable *>(executable); }

// Binds weights and runs prepack.
TW_EXPORT int64_t tw_bind(void *executable, void *const *weights, int threads) {
  return static_cast<tw::Executable *>(executable)->bind(weights, threads);
}

// Runs main; `step_us`, when not null, receives microseconds per step.
TW_EXPORT int64_t tw_run(void *executable, void *const *inputs, void *const *outputs, int threads, double *step_us) {
  return static_cast<tw::Executable *>(executable)->run(inputs, outputs, threads, step_us);
}

TW_EXPORT uint64_t tw_code_bytes(void *executable) { return static_cast<tw::Executable *>(executable)->code_bytes(); }

// Asks the system once for AMX tile state; 0 when this process may use it.
TW_EXPORT int tw_request_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : -1;
}
