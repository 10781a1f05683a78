// Matrix instructions of a warp. Fragments are laid out as the PTX ISA has them: lane l holds rows l / 4 (and 8 more)
// and, per register, as many neighbouring columns from l % 4 on as fit 32 bits.
#include <cstring>

#include "emulator_calls.h"
#include "emulator_numbers.h"

using namespace tw::emulator;

namespace {

struct Fragments {
  const uint8_t *a, *b, *c;
  uint8_t *d;
};

// [16, k] from the registers of 32 lanes, [k, 8] likewise.
template <class T, class Widen>
void gather(void **slots, uint32_t type, uint32_t k, T *a, T *b, Widen widen) {
  const uint32_t per = 4 / element_bytes(type), halves = k / (4 * per);
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    const Fragments &mine = *static_cast<Fragments *>(slots[lane]);
    const uint32_t group = lane / 4, first = lane % 4 * per;
    T left[16], right[8];
    widen(type, mine.a, left, 2 * halves * per);
    widen(type, mine.b, right, halves * per);
    for (uint32_t half = 0; half < halves; ++half)
      for (uint32_t i = 0; i < per; ++i) {
        uint32_t column = first + i + half * 4 * per;
        a[group * k + column] = left[2 * half * per + i];
        a[(group + 8) * k + column] = left[(2 * half + 1) * per + i];
        b[column * 8 + group] = right[half * per + i];
      }
  }
}

template <class T, class Read, class Write>
void update(void **slots, const T *product, Read read, Write write) {
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    const Fragments &mine = *static_cast<Fragments *>(slots[lane]);
    for (uint32_t i = 0; i < 4; ++i)
      write(mine.d, i, read(mine.c, i) + product[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2]);
  }
}

template <class T>
T at(const uint8_t *place, uint32_t i) {
  T value;
  std::memcpy(&value, place + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put(uint8_t *place, uint32_t i, T value) {
  std::memcpy(place + i * sizeof(T), &value, sizeof(T));
}

}  // namespace

extern "C" {

void twe_mma(Thread *thread, Site site, uint32_t type, uint32_t k, uint32_t half, const void *a, const void *b,
             const void *c, void *d) {
  Fragments mine{static_cast<const uint8_t *>(a), static_cast<const uint8_t *>(b), static_cast<const uint8_t *>(c),
                 static_cast<uint8_t *>(d)};
  thread->scheduler->meet(
      *thread, site, thread->block->warps[thread->warp()], thread->lane(), kWarp, &mine, "an mma", [&](void **slots) {
        if (is_integer(type)) {
          int32_t left[16 * 32], right[32 * 8], product[16 * 8] = {};
          gather(slots, type, k, left, right, widen_integers);
          multiply_integers(left, right, product, 16, k, 8);
          update(slots, product, at<int32_t>, put<int32_t>);
          return;
        }
        float left[16 * 32], right[32 * 8], product[16 * 8] = {};
        gather(slots, type, k, left, right, widen_floats);
        multiply_floats(left, right, product, 16, k, 8);
        if (half)
          update(slots, product, [](const uint8_t *p, uint32_t i) { return float_of_half(at<uint16_t>(p, i)); },
                 [](uint8_t *p, uint32_t i, float value) { put(p, i, half_of_float(value)); });
        else
          update(slots, product, at<float>, put<float>);
      });
}

// Four products at once, one per quad pair: lanes 4q to 4q + 3 and 16 more.
void twe_mma_m8n8k4(Thread *thread, Site site, uint32_t a_column, uint32_t b_column, const void *a, const void *b,
                    const float *c, float *d) {
  Fragments mine{static_cast<const uint8_t *>(a), static_cast<const uint8_t *>(b),
                 reinterpret_cast<const uint8_t *>(c), reinterpret_cast<uint8_t *>(d)};
  thread->scheduler->meet(
      *thread, site, thread->block->warps[thread->warp()], thread->lane(), kWarp, &mine, "an mma", [&](void **slots) {
        for (uint32_t quad = 0; quad < 4; ++quad) {
          float left[8 * 4], right[4 * 8], product[8 * 8] = {};
          auto lane_of = [&](uint32_t i) { return quad * 4 + i % 4 + i / 4 * 16; };
          for (uint32_t i = 0; i < 8; ++i) {
            const Fragments &theirs = *static_cast<Fragments *>(slots[lane_of(i)]);
            for (uint32_t j = 0; j < 4; ++j) {
              float x = float_of_half(at<uint16_t>(theirs.a, j)), y = float_of_half(at<uint16_t>(theirs.b, j));
              // By rows of a (columns of b) lane i has row i; else it has column i % 4 of its half's four rows.
              uint32_t row = a_column ? j + i / 4 * 4 : i, column = a_column ? i % 4 : j;
              left[row * 4 + column] = x;
              uint32_t along = b_column ? j : i % 4, across = b_column ? i : j + i / 4 * 4;
              right[along * 8 + across] = y;
            }
          }
          multiply_floats(left, right, product, 8, 4, 8);
          for (uint32_t i = 0; i < 8; ++i) {
            uint32_t lane = lane_of(i);
            const Fragments &theirs = *static_cast<Fragments *>(slots[lane]);
            for (uint32_t j = 0; j < 8; ++j) {
              uint32_t row = (lane & 1) + (j & 2) + i / 4 * 4, column = (j & 4) + (lane & 2) + (j & 1);
              put(theirs.d, j, at<float>(theirs.c, j) + product[row * 8 + column]);
            }
          }
        }
      });
}

void twe_ldmatrix(Thread *thread, Site site, uint64_t row, uint32_t tiles, uint32_t transpose, uint32_t *registers) {
  struct Slot {
    const uint16_t *row;
    uint32_t *registers;
  } mine{reinterpret_cast<const uint16_t *>(row), registers};
  if (thread->lane() < 8 * tiles) twe_load_shared(thread, site, row, 16, 16);
  thread->scheduler->meet(
      *thread, site, thread->block->warps[thread->warp()], thread->lane(), kWarp, &mine, "an ldmatrix",
      [&](void **slots) {
        for (uint32_t tile = 0; tile < tiles; ++tile)
          for (uint32_t lane = 0; lane < kWarp; ++lane) {
            uint32_t pair = 0;
            for (uint32_t i = 0; i < 2; ++i) {
              uint32_t r = lane / 4, column = lane % 4 * 2 + i;
              if (transpose) std::swap(r, column);
              pair |= uint32_t(static_cast<Slot *>(slots[tile * 8 + r])->row[column]) << 16 * i;
            }
            static_cast<Slot *>(slots[lane])->registers[tile] = pair;
          }
      });
}

void twe_stmatrix(Thread *thread, Site site, uint64_t row, uint32_t transpose, uint32_t r0, uint32_t r1, uint32_t r2,
                  uint32_t r3) {
  struct Slot {
    uint16_t *row;
    uint32_t registers[4];
  } mine{reinterpret_cast<uint16_t *>(row), {r0, r1, r2, r3}};
  twe_store_shared(thread, site, row, 16, 16);
  thread->scheduler->meet(
      *thread, site, thread->block->warps[thread->warp()], thread->lane(), kWarp, &mine, "an stmatrix",
      [&](void **slots) {
        for (uint32_t tile = 0; tile < 4; ++tile)
          for (uint32_t lane = 0; lane < kWarp; ++lane)
            for (uint32_t i = 0; i < 2; ++i) {
              uint32_t r = lane / 4, column = lane % 4 * 2 + i;
              if (transpose) std::swap(r, column);
              static_cast<Slot *>(slots[tile * 8 + r])->row[column] =
                  uint16_t(static_cast<Slot *>(slots[lane])->registers[tile] >> 16 * i);
            }
      });
}
}
