// Matrix products of warpgroups. A group reads its operands and gives its results no sooner than it is waited for;
// until then the accumulators hold marks, which are NaNs of no other origin and name the group that will replace them.
#include <cstring>

#include "emulator_calls.h"
#include "emulator_numbers.h"

namespace tw::emulator {
namespace {

constexpr uint32_t kRows = 64, kStepBytes = 32, kKept = 16, kMark = 0xffa00000, kMarkMask = 0xffff0000;

uint32_t mark(uint32_t group, uint32_t index) { return kMark | (group & 255) << 8 | index; }
bool is_mark(uint32_t bits) { return (bits & kMarkMask) == kMark; }

// A matrix operand in shared memory: rows are those of a, or columns of b.
struct Operand {
  uint32_t start;
  bool is_k_major;
  uint32_t swizzle, leading, stride, step;

  // Where element (row, byte `k_byte` of instruction `number`) lies. PTX ISA, "Strides" of matrix descriptors.
  uint32_t place(uint32_t row, uint32_t number, uint32_t k, uint32_t size) const {
    uint32_t at = start + number * step;
    if (is_k_major) {
      uint32_t byte = k * size;
      at += row / 8 * stride;
      at += swizzle ? row % 8 * swizzle + byte : byte / 16 * leading + row % 8 * 16 + byte % 16;
    } else if (swizzle) {
      uint32_t panel = swizzle / size;
      at += row / panel * leading + k / 8 * stride + k % 8 * swizzle + row % panel * size;
    } else {
      uint32_t panel = 16 / size;
      at += row / panel * stride + k / 8 * leading + k % 8 * 16 + row % panel * size;
    }
    return swizzled(at, swizzle);
  }
};

}  // namespace

struct WgmmaGroup {
  uint32_t number, n, k_steps, type;
  Operand a, b;
  bool has_register_a, accumulates;
  int64_t chained = -1;             // the group whose results are the accumulators
  std::vector<uint32_t> registers;  // a: [128][4 k_steps]
  std::vector<uint32_t> values;     // accumulators, then results: [128][n / 2]
};

Warpgroup::Warpgroup() = default;
Warpgroup::~Warpgroup() = default;
Warpgroup::Warpgroup(Warpgroup &&) noexcept = default;

void Warpgroup::reset() {
  meeting.reset();
  groups.clear();
  issued = computed = 0;
}

namespace {

WgmmaGroup *find(Warpgroup &warpgroup, int64_t number) {
  for (auto &group : warpgroup.groups)
    if (group->number == number) return group.get();
  return nullptr;
}

// Row and column of accumulator `i` of a thread, in [64, n].
uint32_t position(uint32_t thread, uint32_t i, uint32_t n) {
  uint32_t row = thread / kWarp * 16 + thread % kWarp / 4 + i / 2 % 2 * 8;
  return row * n + i / 4 * 8 + thread % 4 * 2 + i % 2;
}

// Copies an operand, 16 bytes at a time, to `target`: element (row, k) to row * row_step + k * k_step.
template <class T, class Widen>
void read_operand(const WgmmaGroup &group, const Operand &operand, const char *shared, uint32_t rows, T *target,
                  uint32_t row_step, uint32_t k_step, Widen widen) {
  const uint32_t size = element_bytes(group.type), per = 16 / size, along = kStepBytes / size;
  T piece[16];
  for (uint32_t step = 0; step < group.k_steps; ++step)
    for (uint32_t row = 0; row < rows; row += operand.is_k_major ? 1 : per)
      for (uint32_t k = 0; k < along; k += operand.is_k_major ? per : 1) {
        widen(group.type, shared + operand.place(row, step, k, size), piece, per);
        T *to = target + row * row_step + (step * along + k) * k_step;
        for (uint32_t i = 0; i < per; ++i) to[i * (operand.is_k_major ? k_step : row_step)] = piece[i];
      }
}

template <class T, class Widen, class Multiply>
void compute(WgmmaGroup &group, const char *shared, Widen widen, Multiply multiply_all) {
  const uint32_t size = element_bytes(group.type), per_step = kStepBytes / size, k = per_step * group.k_steps;
  std::vector<T> a(kRows * k), b(size_t(k) * group.n), d(kRows * group.n);
  read_operand(group, group.b, shared, group.n, b.data(), 1, group.n, widen);
  if (group.has_register_a) {
    const uint32_t per = 4 / size, registers = 4 * group.k_steps;
    std::vector<T> row_values(registers * per);
    for (uint32_t thread = 0; thread < kWarpgroup; ++thread) {
      widen(group.type, &group.registers[thread * registers], row_values.data(), registers * per);
      for (uint32_t r = 0; r < registers; ++r)
        for (uint32_t i = 0; i < per; ++i) {
          uint32_t row = thread / kWarp * 16 + thread % kWarp / 4 + r % 2 * 8;
          uint32_t column = r / 4 * per_step + r % 4 / 2 * 4 * per + thread % 4 * per + i;
          a[row * k + column] = row_values[r * per + i];
        }
    }
  } else {
    read_operand(group, group.a, shared, kRows, a.data(), k, 1, widen);
  }
  const uint32_t count = group.n / 2;
  for (uint32_t thread = 0; group.accumulates && thread < kWarpgroup; ++thread)
    for (uint32_t i = 0; i < count; ++i)
      std::memcpy(&d[position(thread, i, group.n)], &group.values[thread * count + i], 4);
  multiply_all(a.data(), b.data(), d.data(), kRows, k, group.n);
  for (uint32_t thread = 0; thread < kWarpgroup; ++thread)
    for (uint32_t i = 0; i < count; ++i)
      std::memcpy(&group.values[thread * count + i], &d[position(thread, i, group.n)], 4);
}

void compute_until(Thread &thread, Warpgroup &warpgroup, uint32_t last) {
  for (auto &group : warpgroup.groups) {
    if (group->number <= warpgroup.computed || group->number > last) continue;
    if (group->chained >= 0) group->values = find(warpgroup, group->chained)->values;
    if (is_integer(group->type))
      compute<int32_t>(*group, thread.shared, widen_integers, multiply_integers);
    else
      compute<float>(*group, thread.shared, widen_floats, multiply_floats);
    warpgroup.computed = group->number;
  }
  while (warpgroup.groups.size() > kKept && warpgroup.groups.front()->number <= warpgroup.computed)
    warpgroup.groups.pop_front();
}

// Every 16 bytes that the operand covers are read asynchronously by all threads of the warpgroup together.
void check_operand(Thread &thread, Site site, const Actor &actor, const WgmmaGroup &group, const Operand &operand,
                   uint32_t rows) {
  const uint32_t size = element_bytes(group.type), per = 16 / size;
  for (uint32_t step = 0; step < group.k_steps; ++step) {
    uint32_t along = kStepBytes / size;
    for (uint32_t row = 0; row < rows; row += operand.is_k_major ? 1 : per)
      for (uint32_t k = 0; k < along; k += operand.is_k_major ? per : 1) {
        uint32_t offset = operand.place(row, step, k, size);
        check_inside(thread, site, offset, 16);
        if (thread.scheduler->launch.checked)
          check_shared(thread, actor, site, *thread.block, offset, 16, false);
      }
  }
}

struct Slot {
  Thread *thread;
  uint32_t *accumulators;
  const uint32_t *registers;
};

void start(void **slots, Site site, std::unique_ptr<WgmmaGroup> made) {
  WgmmaGroup &group = *made;
  Thread &first = *static_cast<Slot *>(slots[0])->thread;
  Scheduler &scheduler = *first.scheduler;
  Warpgroup &warpgroup = first.block->warpgroups[first.id / kWarpgroup];
  const uint32_t count = group.n / 2;
  group.number = ++warpgroup.issued;
  warpgroup.site = site;
  group.values.resize(kWarpgroup * count);
  const uint32_t *lead = static_cast<Slot *>(slots[0])->accumulators;
  // Accumulators of a group that has not been waited for: the hardware chains them, in registers.
  if (group.accumulates && is_mark(lead[0]))
    for (auto &other : warpgroup.groups)
      if (other->n == group.n && mark(other->number, 0) == lead[0]) group.chained = other->number;
  for (uint32_t i = 0; i < kWarpgroup; ++i) {
    Slot &slot = *static_cast<Slot *>(slots[i]);
    for (uint32_t j = 0; j < count; ++j) {
      uint32_t bits = slot.accumulators[j];
      bool is_expected = group.chained >= 0 ? bits == mark(uint32_t(group.chained), j) : !is_mark(bits);
      if (group.accumulates && !is_expected)
        scheduler.fail(*slot.thread, TW_MISUSE, site,
                       "accumulator " + std::to_string(j) + " belongs to a wgmma that has not been waited for");
      group.values[i * count + j] = bits;
      slot.accumulators[j] = mark(group.number, j);
    }
    if (group.has_register_a)
      group.registers.insert(group.registers.end(), slot.registers, slot.registers + 4 * group.k_steps);
  }
  Actor actor{first.own[kOwnWgmma].agent, group.number, true, true};
  const ClockBody *checked = nullptr;
  for (uint32_t i = 0; i < kWarpgroup; ++i) {
    Thread &thread = *static_cast<Slot *>(slots[i])->thread;
    if (i && (!scheduler.launch.checked || thread.seen.get() == checked)) continue;
    checked = thread.seen.get();
    if (!group.has_register_a) check_operand(thread, site, actor, group, group.a, kRows);
    check_operand(thread, site, actor, group, group.b, group.n);
  }
  warpgroup.groups.push_back(std::move(made));
  if (scheduler.completes_early()) compute_until(first, warpgroup, group.number);
}

Operand operand_of(Thread &thread, Site site, uint64_t address, const int32_t *layout) {
  check_inside(thread, site, address - reinterpret_cast<uint64_t>(thread.shared), 16);
  check_alignment(thread, site, shared_offset(thread, address), 16, "a matrix in shared memory");
  return {shared_offset(thread, address), layout[0] != 0,      uint32_t(layout[1]),
          uint32_t(layout[2]),            uint32_t(layout[3]), uint32_t(layout[4])};
}

}  // namespace
}  // namespace tw::emulator

using namespace tw::emulator;

extern "C" {

void twe_wgmma(Thread *thread, Site site, uint32_t *accumulators, uint32_t n, uint32_t k_steps, uint32_t type,
               uint32_t scale_d, uint64_t a, const int32_t *a_layout, const uint32_t *registers, uint64_t b,
               const int32_t *b_layout) {
  Slot slot{thread, accumulators, registers};
  Warpgroup &warpgroup = thread->block->warpgroups[thread->id / kWarpgroup];
  thread->scheduler->meet(*thread, site, warpgroup.meeting, uint32_t(thread->id) % kWarpgroup, kWarpgroup, &slot,
                          "a wgmma", [&](void **slots) {
                            auto made = std::make_unique<WgmmaGroup>();
                            made->n = n;
                            made->k_steps = k_steps;
                            made->type = type;
                            made->accumulates = scale_d != 0;
                            made->has_register_a = registers != nullptr;
                            if (!registers) made->a = operand_of(*thread, site, a, a_layout);
                            made->b = operand_of(*thread, site, b, b_layout);
                            start(slots, site, std::move(made));
                          });
}

void twe_wgmma_wait(Thread *thread, Site, uint32_t *accumulators, uint32_t count, uint32_t groups) {
  Warpgroup &warpgroup = thread->block->warpgroups[thread->id / kWarpgroup];
  if (warpgroup.issued < groups) return;
  uint32_t last = warpgroup.issued - groups;
  compute_until(*thread, warpgroup, last);
  Own &own = thread->own[kOwnWgmma];
  if (own.seen < last) own.seen = last;
  for (uint32_t i = 0; i < count; ++i) {
    if (!is_mark(accumulators[i])) continue;
    for (auto &group : warpgroup.groups) {
      if (((accumulators[i] >> 8) & 255) != (group->number & 255)) continue;
      if (group->number <= last)
        accumulators[i] =
            group->values[uint32_t(thread->id) % kWarpgroup * (group->n / 2) + (accumulators[i] & 255)];
      break;
    }
  }
}
}
