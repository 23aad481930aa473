// Walk: notices readers that open the files of a directory in listing order, and says how many to
// fetch ahead of them.
//
// Several readers may walk one directory, each its own part of it or all of them sharing one order;
// each walk is a place that moves on. An opening within 16 places of one moves it; one that fits
// nowhere begins another. Openings at random keep beginning new ones and so fetch nothing, except
// in directories so small that a share of them is within reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace yard::mount {

struct WalkPlan {
  uint64_t first_index = 0;  // of the files to have under way
  uint64_t count = 0;
  uint64_t end_index() const { return first_index + count; }
};

// Of one directory. Not thread-safe.
class Walk {
 public:
  // The file at that place of the listing was opened.
  WalkPlan on_open(uint64_t index);
  // Of that plan only the files before `end_index` were begun.
  void cut(const WalkPlan& plan, uint64_t end_index);

 private:
  struct Place {
    uint64_t index = 0;
    uint64_t fetched_to = 0;  // files before it are under way already
    int steps = 0;
    uint64_t used = 0;  // when, in openings
  };
  static constexpr size_t kPlacesMax = 32;

  std::vector<Place> places_;
  uint64_t open_count_ = 0;
};

}  // namespace yard::mount
