// Half and bfloat16 conversions that LLVM emits as calls on CPUs without the instructions.
//
// A half or bfloat16 travels in the low 16 bits of an XMM register, so `float` stands for both below.
#include <cstdint>
#include <cstring>

#include "abi.h"
#include "elf_loader.h"

namespace {

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

uint32_t to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

// Rounds the 64-bit pattern of a double to a smaller binary format, to nearest even.
uint32_t narrow(double value, int exponent_bits, int mantissa_bits) {
  uint64_t bits;
  std::memcpy(&bits, &value, 8);
  uint32_t sign = uint32_t(bits >> 63) << (exponent_bits + mantissa_bits);
  int exponent = int(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((1ull << 52) - 1);
  uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  if (exponent == 0x7ff)
    return sign | infinity | (mantissa ? 1u << (mantissa_bits - 1) | uint32_t(mantissa >> (52 - mantissa_bits)) : 0);
  if (exponent == 0) return sign;
  int bias = (1 << (exponent_bits - 1)) - 1;
  int target = exponent - 1023 + bias;
  int drop = 52 - mantissa_bits;
  mantissa |= 1ull << 52;
  if (target <= 0) drop += 1 - target;
  if (drop > 54) return sign;
  uint64_t kept = mantissa >> drop;
  uint64_t rest = mantissa & ((1ull << drop) - 1);
  uint64_t half = 1ull << (drop - 1);
  if (rest > half || (rest == half && (kept & 1))) ++kept;
  // A carry out of the mantissa moves into the exponent by itself; normal values carry their hidden bit.
  uint64_t result = target <= 0 ? kept : kept + (uint64_t(target - 1) << mantissa_bits);
  return sign | (result >= infinity ? infinity : uint32_t(result));
}

float truncsfhf2(float value) { return from_bits(narrow(value, 5, 10)); }
float truncdfhf2(double value) { return from_bits(narrow(value, 5, 10)); }
float truncsfbf2(float value) { return from_bits(narrow(value, 8, 7)); }
float truncdfbf2(double value) { return from_bits(narrow(value, 8, 7)); }

float extendhfsf2(float raw) {
  uint32_t half = to_bits(raw) & 0xffff;
  uint32_t sign = (half & 0x8000) << 16;
  uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) return from_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
  if (exponent) return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  float magnitude = float(mantissa) * 0x1p-24f;
  return from_bits(sign | to_bits(magnitude));
}
double extendhfdf2(float raw) { return extendhfsf2(raw); }
float extendbfsf2(float raw) { return from_bits(to_bits(raw) << 16); }

struct Builtin {
  const char *name;
  void *address;
};

template <class F>
void *address(F *function) {
  return reinterpret_cast<void *>(function);
}

}  // namespace

void *tw::builtin_symbol(const char *name) {
  static const Builtin table[] = {
      {"__truncsfhf2", address(truncsfhf2)},   {"__truncdfhf2", address(truncdfhf2)},
      {"__truncsfbf2", address(truncsfbf2)},   {"__truncdfbf2", address(truncdfbf2)},
      {"__extendhfsf2", address(extendhfsf2)}, {"__extendhfdf2", address(extendhfdf2)},
      {"__extendbfsf2", address(extendbfsf2)},
  };
  for (const Builtin &builtin : table)
    if (!std::strcmp(builtin.name, name)) return builtin.address;
  return nullptr;
}

// The address of a function that compiled code may call and this CPU may lack an instruction for; nullptr for others.
TW_EXPORT void *tw_builtin(const char *name) { return tw::builtin_symbol(name); }
