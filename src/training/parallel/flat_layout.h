// FlatLayout: where each parameter lies in the flat buffers, and which rank holds which part of it.
// Pure arithmetic.
//
// Parameters are put into units, in order of use. A unit is what one collective moves: the bucket
// in which gradients are reduced, and the piece of the model that is gathered at once. It is cut
// into as many equal chunks as ranks share it; rank r holds chunk r of every unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace yard::parallel {

// Starts of tensors and of chunks are multiples of this: a 64-byte cache line of f32.
inline constexpr int64_t kAlignmentElements = 16;

struct FlatUnit {
  int64_t begin = 0;        // element index in the whole flat buffer
  int64_t local_begin = 0;  // element index in a rank's local buffer
  int64_t chunk_elements = 0;
  size_t first_parameter = 0;
  size_t parameter_count = 0;
};

// A part of a parameter: elements in row-major order.
struct FlatRange {
  int64_t begin = 0;  // of the parameter's elements
  int64_t count = 0;
  int64_t local_begin = 0;  // where it lies in the local buffer
};

struct FlatLayout {
  int shard_count = 1;
  std::vector<FlatUnit> units;          // in order of use
  std::vector<size_t> unit_of;          // per parameter
  std::vector<int64_t> offsets;         // per parameter, in its unit
  std::vector<int64_t> element_counts;  // per parameter

  int64_t unit_elements(size_t unit) const { return units[unit].chunk_elements * shard_count; }
  int64_t largest_unit_elements() const;
  int64_t whole_elements() const;  // of the flat buffer, gaps included
  int64_t local_elements() const;  // of a rank's chunks
  // Where the gap behind parameter `index` ends, in its unit: the next parameter or the unit's end.
  int64_t gap_end(size_t index) const;
  // What `shard` holds of parameter `index`; count 0: nothing.
  FlatRange range_of(size_t index, int shard) const;
};

// `names` and `element_counts` in order of use in the forward pass. Units are filled from the end,
// as the backward pass makes gradients ready, each up to `unit_elements` or one module: parameters
// whose names differ only behind the last dot stay together.
FlatLayout plan_flat_layout(const std::vector<std::string>& names,
                            const std::vector<int64_t>& element_counts, int64_t unit_elements,
                            int shard_count);

}  // namespace yard::parallel
