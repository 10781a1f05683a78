// Widening and multiplying many elements at once, on x86-64-v3 like the emulated kernels themselves.
#include "emulator_numbers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TW_V3 __attribute__((target("avx2,f16c")))
#else
#define TW_V3
#endif

namespace tw::emulator {
namespace {

// Four rows at a time keep the sums of 8 columns in registers while `b` streams by once.
template <class T>
TW_V3 inline __attribute__((always_inline)) void multiply(const T *a, const T *b, T *d, uint32_t m, uint32_t k,
                                                          uint32_t n) {
  typedef T Lanes __attribute__((vector_size(32), aligned(4)));
  for (uint32_t row = 0; row < m; row += 4)
    for (uint32_t column = 0; column < n; column += 8) {
      Lanes sums[4];
      for (uint32_t i = 0; i < 4; ++i) sums[i] = *reinterpret_cast<const Lanes *>(d + (row + i) * n + column);
      for (uint32_t at = 0; at < k; ++at) {
        const Lanes right = *reinterpret_cast<const Lanes *>(b + at * n + column);
        for (uint32_t i = 0; i < 4; ++i) sums[i] += a[(row + i) * k + at] * right;
      }
      for (uint32_t i = 0; i < 4; ++i) *reinterpret_cast<Lanes *>(d + (row + i) * n + column) = sums[i];
    }
}

}  // namespace

TW_V3 void multiply_floats(const float *a, const float *b, float *d, uint32_t m, uint32_t k, uint32_t n) {
  multiply(a, b, d, m, k, n);
}

TW_V3 void multiply_integers(const int32_t *a, const int32_t *b, int32_t *d, uint32_t m, uint32_t k, uint32_t n) {
  multiply(a, b, d, m, k, n);
}

TW_V3 void widen_floats(uint32_t type, const void *source, float *target, uint32_t count) {
  if (type == kTf32) {
    // The matrix units ignore the lowest 13 bits.
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t bits;
      std::memcpy(&bits, static_cast<const char *>(source) + i * 4, 4);
      target[i] = float_of_bits(bits & 0xffffe000);
    }
    return;
  }
  const auto *halves = static_cast<const char *>(source);
  for (uint32_t i = 0; i < count; i += 4) {
#if defined(__x86_64__)
    if (type == kF16) {
      _mm_storeu_ps(target + i, _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(halves + i * 2))));
      continue;
    }
#endif
    uint16_t four[4];
    std::memcpy(four, halves + i * 2, 8);
    for (uint32_t j = 0; j < 4; ++j)
      target[i + j] = type == kF16 ? float_of_half(four[j]) : float_of_bits(uint32_t(four[j]) << 16);
  }
}

void widen_integers(uint32_t type, const void *source, int32_t *target, uint32_t count) {
  const auto *bytes = static_cast<const uint8_t *>(source);
  for (uint32_t i = 0; i < count; ++i) target[i] = type == kI8 ? int8_t(bytes[i]) : int32_t(bytes[i]);
}

bool has_instructions() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

}  // namespace tw::emulator
