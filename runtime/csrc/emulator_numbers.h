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

// One element at `place`. The matrix units ignore the lowest 13 bits of a tf32.
inline float float_element(uint32_t type, const void *place) {
  if (type == kTf32) {
    uint32_t bits;
    std::memcpy(&bits, place, 4);
    return float_of_bits(bits & 0xffffe000);
  }
  uint16_t bits;
  std::memcpy(&bits, place, 2);
  return type == kF16 ? float_of_half(bits) : float_of_bits(uint32_t(bits) << 16);
}

inline int32_t integer_element(uint32_t type, const void *place) {
  uint8_t bits = *static_cast<const uint8_t *>(place);
  return type == kI8 ? int8_t(bits) : int32_t(bits);
}

// d += a b on dense rows: [m, k] times [k, n].
template <class T>
inline void multiply(const T *a, const T *b, T *d, uint32_t m, uint32_t k, uint32_t n) {
  for (uint32_t row = 0; row < m; ++row)
    for (uint32_t i = 0; i < k; ++i) {
      const T factor = a[row * k + i];
      const T *right = b + i * n;
      T *result = d + row * n;
      for (uint32_t column = 0; column < n; ++column) result[column] += factor * right[column];
    }
}

}  // namespace tw::emulator
