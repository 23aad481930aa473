#include "mount/walk.h"

#include <algorithm>

namespace yard::mount {
namespace {

constexpr uint64_t kReach = 16;
constexpr int kStepsBeforeFetching = 2;
constexpr uint64_t kAheadFirst = 16;
constexpr uint64_t kAheadMax = 256;

}  // namespace

WalkPlan Walk::on_open(uint64_t index) {
  ++open_count_;
  const auto distance = [&](const Place& place) {
    return place.index > index ? place.index - index : index - place.index;
  };
  const auto nearest = std::ranges::min_element(places_, {}, distance);
  if (nearest == places_.end() || distance(*nearest) > kReach || distance(*nearest) == 0) {
    if (nearest != places_.end() && nearest->index == index) return {};
    if (places_.size() >= kPlacesMax)
      places_.erase(std::ranges::min_element(places_, {}, &Place::used));
    places_.push_back({.index = index, .fetched_to = index + 1, .used = open_count_});
    return {};
  }
  Place& place = *nearest;
  place.used = open_count_;
  if (index < place.index) return {};  // another reader of the same walk, a little behind
  place.index = index;
  if (++place.steps < kStepsBeforeFetching) return {};
  // As far ahead as it has come, so that a walk that ends soon has cost little.
  const uint64_t ahead =
      std::clamp<uint64_t>(static_cast<uint64_t>(place.steps) * 8, kAheadFirst, kAheadMax);
  const uint64_t first = std::max(place.fetched_to, index + 1);
  const uint64_t end = index + 1 + ahead;
  if (first >= end) return {};
  place.fetched_to = end;
  return {first, end - first};
}

void Walk::cut(const WalkPlan& plan, uint64_t end_index) {
  for (Place& place : places_)
    if (place.fetched_to == plan.end_index()) place.fetched_to = end_index;
}

}  // namespace yard::mount
