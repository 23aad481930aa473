// SharedEpoch: which epoch the workers of a DataLoader are in, told among processes.
//
// A DataLoader forks its workers from the same object for every epoch, so that the object itself
// never learns that an epoch was begun: every epoch would be the first one. This one number lies in
// memory that a fork shares; it has no name anywhere and goes with the last process.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <optional>

#include "base/result.h"

namespace yard::python {

// Thread-safe, and safe among processes: one word, never locked.
class SharedEpoch {
 public:
  SharedEpoch() {
    void* page =
        ::mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::bad_alloc();
    word_ = new (page) Word(0);
  }
  ~SharedEpoch() { ::munmap(word_, sizeof(Word)); }
  SharedEpoch(const SharedEpoch&) = delete;
  SharedEpoch& operator=(const SharedEpoch&) = delete;

  // The epoch of the iteration with that tag, the same for all who name the tag: the one after the
  // last that was claimed, `first` when none was. tag > 0.
  uint32_t claim(uint32_t tag, uint32_t first) {
    uint64_t now = word_->load();
    while (tag_of(now) != tag) {
      const uint32_t epoch = tag_of(now) == 0 ? first : uint32_t(now) + 1;
      if (word_->compare_exchange_weak(now, word_of(tag, epoch))) return epoch;
    }
    return uint32_t(now);
  }
  // A worker that lives on has begun a later epoch of the same tag.
  void advance(uint32_t tag, uint32_t epoch) {
    uint64_t now = word_->load();
    while (tag_of(now) == tag && uint32_t(now) < epoch)
      if (word_->compare_exchange_weak(now, word_of(tag, epoch))) return;
  }
  void reset() { word_->store(0); }
  std::optional<uint32_t> claimed() const {
    const uint64_t now = word_->load();
    return tag_of(now) == 0 ? std::nullopt : std::optional(uint32_t(now));
  }

 private:
  using Word = std::atomic<uint64_t>;
  static_assert(Word::is_always_lock_free);
  static uint32_t tag_of(uint64_t word) { return uint32_t(word >> 32); }
  static uint64_t word_of(uint32_t tag, uint32_t epoch) { return uint64_t(tag) << 32 | epoch; }

  Word* word_;
};

}  // namespace yard::python
