// What is remembered of every accessed place, so that reads of nothing and unordered accesses are found.
#pragma once
#include <cstdint>
#include <vector>

#include "emulator.h"

namespace tw::emulator {

// One access to a word of shared memory, packed: which agent, its clock, the bytes of the word, the source operation.
// Zero is no access.
class Access {
 public:
  Access() = default;
  Access(uint32_t agent, uint32_t clock, uint32_t bytes, Site site)
      : bits_(uint64_t(clock) << 34 | uint64_t(agent) << 19 | uint64_t(site & kNoSite) << 4 | bytes) {}
  explicit operator bool() const { return bits_ != 0; }
  bool operator==(const Access &other) const { return bits_ == other.bits_; }
  uint32_t clock() const { return uint32_t(bits_ >> 34); }
  uint32_t agent() const { return uint32_t(bits_ >> 19) & 0x7fff; }
  Site site() const { return Site(bits_ >> 4) & kNoSite; }
  uint32_t bytes() const { return uint32_t(bits_) & 15; }
  void add(uint32_t bytes) { bits_ |= bytes; }
  void remove(uint32_t bytes) {
    bits_ &= ~uint64_t(bytes);
    if (!(bits_ & 15)) bits_ = 0;
  }

 private:
  uint64_t bits_ = 0;
};

// The last writes of a word and the reads since. Of reads the last two by different agents are kept, for even and odd
// warpgroups: whoever writes next without waiting for all readers is unordered with one of these, save in rare cases.
struct Word {
  static constexpr int kKept = 4;
  Access writes[kKept], reads[kKept];
};

class SharedShadow {
 public:
  explicit SharedShadow(int64_t bytes);
  ~SharedShadow();
  void reset();

  Word *words = nullptr;
  uint8_t *ready = nullptr;  // per word, which bytes have been written

 private:
  size_t word_count_;
};

// One element of a buffer in global memory. Clusters are counted from 1; 0 is none.
struct Element {
  int32_t write_cluster, read_cluster;
  uint32_t write_clock, read_clock;
  uint16_t write_agent, read_agent, write_site, read_site;
};

class GlobalShadow {
 public:
  explicit GlobalShadow(const tw_emulation &table);
  ~GlobalShadow();

  struct Buffer {
    const tw_emulated_buffer *table;
    int shift;  // of a byte offset to an element's number
    Element *elements;
    size_t mapped;
  };
  std::vector<Buffer> buffers;

  // The buffer that holds [address, address + bytes), or nullptr.
  const Buffer *find(int32_t argument, uint64_t address, uint64_t bytes) const;
};

}  // namespace tw::emulator
