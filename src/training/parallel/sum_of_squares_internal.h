// The sum of squares of many floats, in f64.
#pragma once

#include <span>

namespace yard::parallel {

// The same bits for any number of threads: each block of values is summed by itself, and the sums
// in order. Uses libtorch's threads.
double sum_of_squares(std::span<const float> values);

}  // namespace yard::parallel
