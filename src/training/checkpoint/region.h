// Region: which elements of a tensor a chunk holds.
//
// The elements of a chunk lie in the order of the flattened (row-major) tensor, so a chunk is an
// ascending sequence of runs of that order, whatever its form. All arithmetic on chunks is done on
// these runs: a chunk of one form can be read from chunks of any other.
//
//   flat   elements [begin, end) of the flattened tensor: ZeRO's shards, also across rows
//   box    [begin, end) in each dimension: FSDP's rows, tensor parallelism's rows and columns
//   all    the whole tensor
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace yard::checkpoint {

using Shape = std::vector<uint64_t>;  // no dimension: a scalar, of one element

inline constexpr size_t kDimensionCountMax = 64;
inline constexpr uint64_t kElementCountMax = uint64_t{1} << 56;

struct Interval {
  uint64_t begin = 0;
  uint64_t end = 0;  // not in it

  uint64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
  auto operator<=>(const Interval&) const = default;
};

struct Region {
  enum class Kind : uint8_t { kAll, kFlat, kBox };

  Kind kind = Kind::kAll;
  std::vector<Interval> sides;  // kFlat: one; kBox: one for each dimension

  static Region all() { return {}; }
  static Region flat(uint64_t begin, uint64_t end) { return {Kind::kFlat, {{begin, end}}}; }
  static Region box(std::vector<Interval> sides) { return {Kind::kBox, std::move(sides)}; }
  // The box that is whole but for [begin, end) of `dimension`. Contract: there is that dimension.
  static Region slice(const Shape& shape, size_t dimension, uint64_t begin, uint64_t end);

  bool operator==(const Region&) const = default;
  auto operator<=>(const Region&) const = default;
};

// kInvalidArgument: over kDimensionCountMax dimensions or kElementCountMax elements.
Result<uint64_t> count_elements(const Shape& shape);

// Everything below takes a shape that count_elements() accepts, and regions that check_region()
// accepts for it (contract).

// kInvalidArgument: it reaches outside, or has another number of sides.
Status check_region(const Region& region, const Shape& shape);
uint64_t element_count(const Region& region, const Shape& shape);
// The shape of a dense array of its elements: one dimension where it is flat.
Shape shape_of(const Region& region, const Shape& shape);
// The one form of all regions with the same elements: flat where they lie in one run, else a box.
Region canonical(const Region& region, const Shape& shape);
// "" for all, "[flat 10:20]", "[0:4,8:16]".
std::string to_string(const Region& region, const Shape& shape);

// {"flat": [begin, end]}, {"box": [[begin, end], ...]}, {} for all.
Json to_json(const Region& region);
Result<Region> region_from_json(const Json& json, std::string_view what);

// Walks over the runs of a region, in order. Not thread-safe; refers to nothing.
class RunCursor {
 public:
  RunCursor(const Region& region, const Shape& shape);

  bool done() const { return done_; }
  Interval run() const { return {begin_, begin_ + run_size_}; }  // contract: not done
  uint64_t position() const { return position_; }  // of the run's first element in the chunk
  void next();

 private:
  struct Outer {
    uint64_t count;   // steps
    uint64_t stride;  // elements of the flattened tensor
    uint64_t index = 0;
  };

  std::vector<Outer> outer_;  // the slowest first
  uint64_t begin_ = 0;
  uint64_t run_size_ = 0;
  uint64_t position_ = 0;
  bool done_ = false;
};

// Elements that two chunks of a tensor share.
struct CommonRun {
  uint64_t position_a = 0;  // in the one chunk
  uint64_t position_b = 0;  // in the other
  uint64_t element_count = 0;
};
// In ascending order.
void for_each_common_run(const Region& a, const Region& b, const Shape& shape,
                         const std::function<void(const CommonRun&)>& visit);

// Whether the regions are disjoint and together the whole tensor. kInvalidArgument names two that
// overlap, or says how many elements are missing.
Status check_cover(const std::vector<Region>& regions, const Shape& shape);

}  // namespace yard::checkpoint
