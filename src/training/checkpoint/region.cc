#include "checkpoint/region.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace yard::checkpoint {
namespace {

uint64_t product(const Shape& shape) {
  uint64_t count = 1;
  for (const uint64_t side : shape) count *= side;
  return count;
}

// How many of the innermost dimensions lie in one run, the cut one before the whole ones included;
// 0 for a scalar.
size_t dense_dimension_count(const std::vector<Interval>& sides, const Shape& shape) {
  size_t dense = 0;
  while (dense < shape.size()) {
    const size_t dimension = shape.size() - 1 - dense;
    ++dense;
    if (sides[dimension].size() != shape[dimension]) break;
  }
  return dense;
}

std::string to_text(const std::vector<Interval>& sides) {
  std::string text;
  for (const Interval& side : sides)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", side.begin, side.end);
  return text;
}

// The least run that holds all of it. Contract: not empty.
Interval hull(const Region& canonical_region, const Shape& shape) {
  if (canonical_region.kind == Region::Kind::kFlat) return canonical_region.sides[0];
  Interval span;
  uint64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
    span.begin += canonical_region.sides[i].begin * stride;
    span.end += (canonical_region.sides[i].end - 1) * stride;
  }
  ++span.end;
  return span;
}

bool boxes_overlap(const Region& a, const Region& b) {
  for (size_t i = 0; i < a.sides.size(); ++i)
    if (a.sides[i].end <= b.sides[i].begin || b.sides[i].end <= a.sides[i].begin) return false;
  return true;
}

bool overlap(const Region& a, const Region& b, const Shape& shape) {
  if (a.kind == b.kind) return boxes_overlap(a, b);  // a flat one is a box of one side
  bool found = false;
  for_each_common_run(a, b, shape, [&](const CommonRun&) { found = true; });
  return found;
}

// A region and the interval that it takes on the axis by which all are sorted.
struct Placed {
  const Region* region;
  Interval along;
};

// The axis that tells most regions apart: a dimension where all are boxes, else the flat order.
std::vector<Placed> place(const std::vector<Region>& regions, const Shape& shape) {
  const bool all_boxes = std::ranges::all_of(
      regions, [](const Region& region) { return region.kind == Region::Kind::kBox; });
  size_t axis = 0;
  size_t distinct_max = 0;
  for (size_t i = 0; all_boxes && i < shape.size(); ++i) {
    std::set<uint64_t> begins;
    for (const Region& region : regions) begins.insert(region.sides[i].begin);
    if (begins.size() > distinct_max) axis = i;
    distinct_max = std::max(distinct_max, begins.size());
  }
  std::vector<Placed> placed;
  for (const Region& region : regions)
    placed.push_back({&region, all_boxes ? region.sides[axis] : hull(region, shape)});
  std::ranges::sort(placed, {}, &Placed::along);
  return placed;
}

Result<Interval> interval_of(const Json& json, std::string_view what) {
  const bool is_pair = json.is_array() && json.size() == 2 && json[0].is_number_unsigned() &&
                       json[1].is_number_unsigned() &&
                       json[0].get<uint64_t>() <= json[1].get<uint64_t>();
  if (is_pair) return Interval{json[0].get<uint64_t>(), json[1].get<uint64_t>()};
  return Error{Code::kInvalidArgument,
               fmt::format("{}: an interval is [begin, end], not {}", what, json.dump())};
}

}  // namespace

Region Region::slice(const Shape& shape, size_t dimension, uint64_t begin, uint64_t end) {
  YARD_CHECK(dimension < shape.size());
  std::vector<Interval> sides;
  for (const uint64_t side : shape) sides.push_back({0, side});
  sides[dimension] = {begin, end};
  return box(std::move(sides));
}

Result<uint64_t> count_elements(const Shape& shape) {
  if (shape.size() > kDimensionCountMax)
    return Error{Code::kInvalidArgument, fmt::format("{} dimensions are too many", shape.size())};
  // Sides of a tensor without elements are multiplied too, so that no product of some overflows.
  uint64_t count = 1;
  bool is_empty = false;
  for (const uint64_t side : shape) {
    is_empty = is_empty || side == 0;
    if (__builtin_mul_overflow(count, std::max<uint64_t>(side, 1), &count) ||
        count > kElementCountMax)
      return Error{Code::kInvalidArgument,
                   fmt::format("shape [{}] has too many elements", fmt::join(shape, ", "))};
  }
  return is_empty ? 0 : count;
}

Status check_region(const Region& region, const Shape& shape) {
  const auto outside = [&] {
    return Error{Code::kInvalidArgument,
                 fmt::format("[{}] is no region of shape [{}]", to_text(region.sides),
                             fmt::join(shape, ", "))};
  };
  const Shape flat{product(shape)};
  const Shape& bounds = region.kind == Region::Kind::kFlat ? flat : shape;
  if (region.kind == Region::Kind::kAll) return Ok{};
  if (region.sides.size() != bounds.size()) return outside();
  for (size_t i = 0; i < bounds.size(); ++i)
    if (region.sides[i].begin > region.sides[i].end || region.sides[i].end > bounds[i])
      return outside();
  return Ok{};
}

uint64_t element_count(const Region& region, const Shape& shape) {
  return product(shape_of(region, shape));
}

Shape shape_of(const Region& region, const Shape& shape) {
  if (region.kind == Region::Kind::kAll) return shape;
  Shape sizes;
  for (const Interval& side : region.sides) sizes.push_back(side.size());
  return sizes;
}

Region canonical(const Region& region, const Shape& shape) {
  if (region.kind == Region::Kind::kFlat) return region;
  if (region.kind == Region::Kind::kAll) return Region::flat(0, product(shape));
  const uint64_t count = element_count(region, shape);
  if (count == 0) return Region::flat(0, 0);
  const RunCursor cursor(region, shape);
  const Interval first = cursor.run();
  if (first.size() == count) return Region::flat(first.begin, first.end);
  return region;
}

std::string to_string(const Region& region, const Shape& shape) {
  if (element_count(region, shape) == product(shape)) return {};
  if (region.kind == Region::Kind::kFlat) return fmt::format("[flat {}]", to_text(region.sides));
  return fmt::format("[{}]", to_text(region.sides));
}

Json to_json(const Region& region) {
  if (region.kind == Region::Kind::kAll) return Json::object();
  Json sides = Json::array();
  for (const Interval& side : region.sides) sides.push_back({side.begin, side.end});
  if (region.kind == Region::Kind::kFlat) return {{"flat", sides[0]}};
  return {{"box", sides}};
}

Result<Region> region_from_json(const Json& json, std::string_view what) {
  if (json.contains("flat")) {
    YARD_ASSIGN(const Interval side, interval_of(json["flat"], what));
    return Region::flat(side.begin, side.end);
  }
  if (!json.contains("box")) return Region::all();
  const Json& box = json["box"];
  if (!box.is_array() || box.size() > kDimensionCountMax)
    return Error{Code::kInvalidArgument, fmt::format("{}: 'box' is no list of intervals", what)};
  std::vector<Interval> sides;
  for (const Json& side : box) {
    YARD_ASSIGN(sides.emplace_back(), interval_of(side, what));
  }
  return Region::box(std::move(sides));
}

RunCursor::RunCursor(const Region& region, const Shape& shape) {
  done_ = element_count(region, shape) == 0;
  if (done_) return;
  if (region.kind != Region::Kind::kBox) {
    begin_ = region.kind == Region::Kind::kFlat ? region.sides[0].begin : 0;
    run_size_ = element_count(region, shape);
    return;
  }
  const size_t outer_count = shape.size() - dense_dimension_count(region.sides, shape);
  run_size_ = 1;
  uint64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
    begin_ += region.sides[i].begin * stride;
    if (i >= outer_count)
      run_size_ *= region.sides[i].size();
    else
      outer_.insert(outer_.begin(), {region.sides[i].size(), stride});
  }
}

void RunCursor::next() {
  position_ += run_size_;
  for (size_t i = outer_.size(); i-- > 0;) {
    Outer& outer = outer_[i];
    begin_ += outer.stride;
    if (++outer.index < outer.count) return;
    begin_ -= outer.stride * outer.count;
    outer.index = 0;
  }
  done_ = true;
}

void for_each_common_run(const Region& a, const Region& b, const Shape& shape,
                         const std::function<void(const CommonRun&)>& visit) {
  RunCursor left(a, shape);
  RunCursor right(b, shape);
  while (!left.done() && !right.done()) {
    const Interval run_a = left.run();
    const Interval run_b = right.run();
    const Interval both{std::max(run_a.begin, run_b.begin), std::min(run_a.end, run_b.end)};
    if (both.begin < both.end)
      visit({left.position() + (both.begin - run_a.begin),
             right.position() + (both.begin - run_b.begin), both.size()});
    if (run_a.end <= run_b.end) left.next();
    if (run_b.end <= run_a.end) right.next();
  }
}

Status check_cover(const std::vector<Region>& regions, const Shape& shape) {
  std::vector<Region> filled;
  uint64_t count = 0;
  for (const Region& region : regions) {
    if (element_count(region, shape) == 0) continue;
    filled.push_back(canonical(region, shape));
    count += element_count(region, shape);
  }
  std::vector<Placed> open;  // those that reach past the begin of the one that is looked at
  for (const Placed& each : place(filled, shape)) {
    std::erase_if(open, [&](const Placed& other) { return other.along.end <= each.along.begin; });
    for (const Placed& other : open)
      if (overlap(*other.region, *each.region, shape))
        return Error{Code::kInvalidArgument,
                     fmt::format("its chunks {} and {} overlap", to_string(*other.region, shape),
                                 to_string(*each.region, shape))};
    open.push_back(each);
  }
  if (count == product(shape)) return Ok{};
  return Error{Code::kInvalidArgument, fmt::format("{} of its {} elements are in no chunk",
                                                   product(shape) - count, product(shape))};
}

}  // namespace yard::checkpoint
