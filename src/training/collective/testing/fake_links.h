// For tests: Links between threads, over memory. A seed decides in what portions the bytes move and
// which thread moves next, so that an order that fails can be run again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collective/links_internal.h"

namespace yard::collective {

// What the threads of one set share.
class FakeWires {
 public:
  FakeWires(size_t size, uint64_t seed) : size_(size), seed_(seed) {}
  size_t size() const { return size_; }
  // Bytes that were sent from one host to another, payloads only.
  uint64_t payload_bytes() const;
  // From now on every exchange fails.
  void cut();

 private:
  friend class FakeLinks;
  struct Wire {
    std::vector<std::byte> bytes;
  };
  const size_t size_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  std::condition_variable moved_;
  std::map<std::pair<size_t, size_t>, Wire> wires_;
  uint64_t move_count_ = 0;
  uint64_t payload_bytes_ = 0;
  bool is_cut_ = false;
};

// `wires` outlives it. Ranks are 10 times their place.
std::unique_ptr<Links> make_fake_links(FakeWires& wires, size_t index);

}  // namespace yard::collective
