// Vector clocks: which accesses of which agents are ordered before what a thread does next.
//
// An agent is whatever accesses memory in an order of its own: a thread, the asynchronous copies of a thread, the
// wgmmas of a warpgroup, the loads counted on one mbarrier, the bulk stores of a thread. Agents of a cluster's blocks
// are numbered together. A thread has seen access number `clock` of an agent when its clock's entry is at least that.
// The second half of a clock, present when kernels use the asynchronous proxy, says the same for asynchronous
// accesses: entries follow those of the first half at every proxy fence.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <vector>

namespace tw::emulator {

class ClockPool;

struct ClockBody {
  uint32_t references;
  ClockPool *pool;
  uint32_t *entries() { return reinterpret_cast<uint32_t *>(this + 1); }
  const uint32_t *entries() const { return reinterpret_cast<const uint32_t *>(this + 1); }
};

// A counted reference to a clock. Shared clocks are immutable; `make_own` copies one that others hold too.
class ClockRef {
 public:
  ClockRef() = default;
  ClockRef(const ClockRef &other) : body_(other.body_) {
    if (body_) ++body_->references;
  }
  ClockRef(ClockRef &&other) noexcept : body_(other.body_) { other.body_ = nullptr; }
  ClockRef &operator=(ClockRef other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  inline ~ClockRef();

  explicit operator bool() const { return body_ != nullptr; }
  const ClockBody *get() const { return body_; }
  uint32_t operator[](uint32_t entry) const { return body_->entries()[entry]; }
  inline void make_own();
  inline void raise(const ClockRef &other);  // entry by entry to the larger; the clock must be its own
  void raise(uint32_t entry, uint32_t value) {
    uint32_t &now = body_->entries()[entry];
    if (now < value) now = value;
  }
  uint32_t *entries() { return body_->entries(); }

 private:
  friend class ClockPool;
  explicit ClockRef(ClockBody *body) : body_(body) {}
  ClockBody *body_ = nullptr;
};

// Makes clocks of `length` entries and keeps those that were given back.
class ClockPool {
 public:
  explicit ClockPool(uint32_t length) : length_(length) {}
  ClockPool(const ClockPool &) = delete;
  ClockPool &operator=(const ClockPool &) = delete;
  ~ClockPool() {
    for (ClockBody *body : free_) ::operator delete(body);
  }

  uint32_t length() const { return length_; }
  ClockRef zero() {
    ClockRef made(body());
    std::memset(made.entries(), 0, length_ * sizeof(uint32_t));
    return made;
  }
  ClockRef copy(const ClockRef &other) {
    ClockRef made(body());
    std::memcpy(made.entries(), other.get()->entries(), length_ * sizeof(uint32_t));
    return made;
  }
  void give(ClockBody *body) { free_.push_back(body); }

 private:
  ClockBody *body() {
    ClockBody *made;
    if (free_.empty()) {
      made = static_cast<ClockBody *>(::operator new(sizeof(ClockBody) + length_ * sizeof(uint32_t)));
    } else {
      made = free_.back();
      free_.pop_back();
    }
    made->references = 1;
    made->pool = this;
    return made;
  }
  uint32_t length_;
  std::vector<ClockBody *> free_;
};

inline ClockRef::~ClockRef() {
  if (body_ && --body_->references == 0) body_->pool->give(body_);
}

inline void ClockRef::make_own() {
  if (body_->references > 1) *this = body_->pool->copy(*this);
}

inline void ClockRef::raise(const ClockRef &other) {
  uint32_t *mine = body_->entries();
  const uint32_t *theirs = other.body_->entries();
  for (uint32_t i = 0, n = body_->pool->length(); i < n; ++i) mine[i] = mine[i] < theirs[i] ? theirs[i] : mine[i];
}

// What a thread has seen of other clusters: cluster number -> their clock. Immutable once shared.
using Known = std::map<int64_t, ClockRef>;
using KnownRef = std::shared_ptr<const Known>;

// What is seen by whoever has seen both.
inline KnownRef join(const KnownRef &a, const KnownRef &b) {
  if (!a || !b || a == b) return a ? a : b;
  auto joined = std::make_shared<Known>(*a);
  for (const auto &entry : *b) {
    ClockRef &mine = (*joined)[entry.first];
    if (!mine) {
      mine = entry.second;
    } else if (mine.get() != entry.second.get()) {
      mine.make_own();
      mine.raise(entry.second);
    }
  }
  return joined;
}

}  // namespace tw::emulator
