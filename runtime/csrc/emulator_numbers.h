// Elements of matrix operands as numbers: what the matrix units read from 8, 16 and 32 bits.
#pragma once
#include <cstdint>
#include <cstring>

namespace tw::emulator {

enum ElementType : uint32_t { kF16, kBf16, kTf32, kI8, kU8 };

inline uint32_t element_bytes(uint32_t type) { return type <= kBf16 ? 2 : type == kTf32 ? 4 : 1; }
inline bool is_integer(uint32_t type) { return type >= kI8; }

inline float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float float_of_half(uint16_t half) {
  uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) return float_of_bits(sign | 0x7f800000 | fraction << 13);
  if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
  float magnitude = float(fraction) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

// Rounded to nearest, ties to even.
inline uint16_t half_of_float(float value) {
  uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return uint16_t(sign | 0x7e00 | (bits >> 13 & 1023));
  if (bits >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (bits < 0x38800000) {
    // Adding 0.5 leaves the fraction of a denormal half, rounded, in the lowest bits.
    return uint16_t(sign | (bits_of_float(float_of_bits(bits) + 0.5f) - 0x3f000000));
  }
  return uint16_t(sign | ((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13));
}

// `count` elements at `source`, a multiple of 4, widened.
void widen_floats(uint32_t type, const void *source, float *target, uint32_t count);
void widen_integers(uint32_t type, const void *source, int32_t *target, uint32_t count);

// d += a b on dense rows: [m, k] times [k, n], n a multiple of 8.
void multiply_floats(const float *a, const float *b, float *d, uint32_t m, uint32_t k, uint32_t n);
void multiply_integers(const int32_t *a, const int32_t *b, int32_t *d, uint32_t m, uint32_t k, uint32_t n);

// Whether this CPU has the instructions that emulated kernels and the functions above are compiled to.
bool has_instructions();

}  // namespace tw::emulator
