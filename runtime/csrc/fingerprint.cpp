// A number that memory has as long as nobody writes to it: of large blocks by some of their words.
#include <cstdint>
#include <cstring>

#include "abi.h"

namespace {

// Blocks of up to this many words are read whole, of larger ones as many words as below are.
constexpr uint64_t kWhole = 128, kSample = 16;

uint64_t mixed(uint64_t hash, const uint8_t *data, uint64_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, data, bytes);
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 32;
}

uint64_t of_block(uint64_t hash, const uint8_t *data, uint64_t bytes) {
  uint64_t words = bytes / 8;
  if (words <= kWhole) {
    for (uint64_t i = 0; i < words; ++i) hash = mixed(hash, data + 8 * i, 8);
    return mixed(hash, data + 8 * words, bytes % 8);
  }
  // One word of each part, at places that fall into no pattern: equal steps would keep to one column of a matrix.
  uint64_t part = words / kSample, place = 0;
  for (uint64_t i = 0; i < kSample; ++i) {
    place = place * 6364136223846793005u + 1442695040888963407u;
    hash = mixed(hash, data + 8 * (i * part + (place >> 33) % part), 8);
  }
  return hash;
}

}  // namespace

TW_EXPORT uint64_t tw_fingerprint(const void *const *blocks, const uint64_t *bytes, uint64_t count) {
  uint64_t hash = 0;
  for (uint64_t i = 0; i < count; ++i) hash = of_block(hash, static_cast<const uint8_t *>(blocks[i]), bytes[i]);
  return hash;
}
