#include "collective/testing/fake_links.h"

#include <algorithm>
#include <cstring>

#include "base/random.h"

namespace yard::collective {

// At most so many bytes lie on a wire: whoever only sends must be able to wait.
constexpr size_t kWireBytesMax = 5000;

LinksPlace place_of(size_t size, size_t index) {
  LinksPlace place;
  for (size_t i = 0; i < size; ++i) place.ranks.push_back(static_cast<int>(10 * i));
  place.index = index;
  return place;
}

class FakeLinks final : public Links {
 public:
  FakeLinks(FakeWires& wires, size_t index) : Links(place_of(wires.size(), index)), wires_(wires) {}

  Status exchange(const CallRecord& call, size_t to, std::span<const std::byte> out, size_t from,
                  std::span<std::byte> in) override {
    const auto partners = partners_of(index(), size());
    for (const size_t partner : {to, from})
      YARD_CHECK(partner == kNoLink ||
                 std::find(partners.begin(), partners.end(), partner) != partners.end());
    std::vector<std::byte> sending;
    std::vector<std::byte> receiving(from == kNoLink ? 0 : sizeof call + in.size());
    if (to != kNoLink) {
      sending.resize(sizeof call + out.size());
      std::memcpy(sending.data(), &call, sizeof call);
      std::copy(out.begin(), out.end(), sending.begin() + sizeof call);
    }
    std::unique_lock lock(wires_.mutex_);
    wires_.payload_bytes_ += out.size();
    size_t sent = 0, received = 0;
    while (sent < sending.size() || received < receiving.size()) {
      if (wires_.is_cut_) return Error{Code::kUnavailable, "the wires are cut"};
      const size_t moved_out = to == kNoLink ? 0 : send(to, std::span(sending).subspan(sent));
      const size_t moved_in =
          from == kNoLink ? 0 : receive(from, std::span(receiving).subspan(received));
      sent += moved_out;
      received += moved_in;
      if (received >= sizeof call) {
        CallRecord theirs;
        std::memcpy(&theirs, receiving.data(), sizeof theirs);
        if (!same_call(call, theirs)) return mismatch(call, theirs);
      }
      if (moved_out + moved_in > 0)
        wires_.moved_.notify_all();
      else
        wires_.moved_.wait(lock);
    }
    if (!receiving.empty()) std::copy(receiving.begin() + sizeof call, receiving.end(), in.begin());
    return Ok{};
  }

 private:
  // Between 1 and `limit`, by the seed and the number of the move.
  size_t portion(size_t limit) {
    return 1 + random_below(limit, wires_.seed_, index(), wires_.move_count_++);
  }
  size_t send(size_t to, std::span<const std::byte> bytes) {
    auto& wire = wires_.wires_[{index(), to}].bytes;
    const size_t room =
        std::min(bytes.size(), kWireBytesMax - std::min(kWireBytesMax, wire.size()));
    if (room == 0) return 0;
    const size_t count = portion(room);
    wire.insert(wire.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  size_t receive(size_t from, std::span<std::byte> bytes) {
    auto& wire = wires_.wires_[{from, index()}].bytes;
    const size_t there = std::min(bytes.size(), wire.size());
    if (there == 0) return 0;
    const auto count = static_cast<std::ptrdiff_t>(portion(there));
    std::copy(wire.begin(), wire.begin() + count, bytes.begin());
    wire.erase(wire.begin(), wire.begin() + count);
    return static_cast<size_t>(count);
  }

  FakeWires& wires_;
};

uint64_t FakeWires::payload_bytes() const {
  std::lock_guard lock(mutex_);
  return payload_bytes_;
}

void FakeWires::cut() {
  std::lock_guard lock(mutex_);
  is_cut_ = true;
  moved_.notify_all();
}

std::unique_ptr<Links> make_fake_links(FakeWires& wires, size_t index) {
  return std::make_unique<FakeLinks>(wires, index);
}

}  // namespace yard::collective
