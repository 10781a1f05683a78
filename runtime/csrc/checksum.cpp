// CRC-32C (Castagnoli, the polynomial of iSCSI, RFC 3720) over memory, by instruction where the CPU has it.
#include <array>
#include <cstdint>
#include <cstring>

#include "abi.h"

namespace {

__attribute__((target("sse4.2"))) uint32_t crc_by_instruction(const uint8_t *data, uint64_t bytes, uint32_t crc) {
  uint64_t wide = crc;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = uint32_t(wide);
  for (; bytes; --bytes, ++data) crc = __builtin_ia32_crc32qi(crc, *data);
  return crc;
}

uint32_t crc_by_table(const uint8_t *data, uint64_t bytes, uint32_t crc) {
  static const auto table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0);
      entries[i] = value;
    }
    return entries;
  }();
  for (; bytes; --bytes, ++data) crc = crc >> 8 ^ table[(crc ^ *data) & 0xff];
  return crc;
}

}  // namespace

TW_EXPORT uint32_t tw_crc32c(const void *data, uint64_t bytes) {
  auto *start = static_cast<const uint8_t *>(data);
  bool has_instruction = __builtin_cpu_supports("sse4.2");
  return ~(has_instruction ? crc_by_instruction(start, bytes, ~0u) : crc_by_table(start, bytes, ~0u));
}

// The same by table, so that a test can compare the two.
TW_EXPORT uint32_t tw_crc32c_portable(const void *data, uint64_t bytes) {
  return ~crc_by_table(static_cast<const uint8_t *>(data), bytes, ~0u);
}
