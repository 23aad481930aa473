// Which elements of a buffer belong to which rank. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/result.h"

namespace yard::collective {

struct Share {
  size_t begin_index = 0;
  size_t count = 0;  // 0 when there are fewer blocks than parts
};

// Splits [0, element_count) into `part_count` shares that differ by at most one block of
// `block_elements`; the last block may be cut short. Blocks of a cache line keep two ranks from
// writing to the same line.
inline Share share_of(size_t element_count, size_t part_count, size_t part_index,
                      size_t block_elements) {
  YARD_CHECK(part_index < part_count && block_elements > 0);
  const size_t block_count = (element_count + block_elements - 1) / block_elements;
  const size_t count_min = block_count / part_count;
  const size_t with_extra = block_count % part_count;
  const size_t first = part_index * count_min + std::min(part_index, with_extra);
  const size_t count = count_min + (part_index < with_extra ? 1 : 0);
  const size_t begin = std::min(element_count, first * block_elements);
  const size_t end = std::min(element_count, (first + count) * block_elements);
  return {.begin_index = begin, .count = end - begin};
}

// The part of [begin, begin + count) that lies in [window_begin, window_begin + window_count).
inline Share overlap_of(size_t begin, size_t count, size_t window_begin, size_t window_count) {
  const size_t from = std::max(begin, window_begin);
  const size_t to = std::min(begin + count, window_begin + window_count);
  return {.begin_index = from, .count = to > from ? to - from : 0};
}

}  // namespace yard::collective
