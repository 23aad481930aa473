// The two inner loops of resampling, compiled for each vector width; the CPU's own is chosen at run
// time. Their results differ between CPUs by the rounding of fused multiply-adds alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace yard::images {

// One row out of several: sums[i] = the sum over t of weights[t] * rows[t][i], for i < count.
void mix_rows(std::span<const uint8_t* const> rows, const float* weights, size_t count,
              float* sums);

// Pixels of three channels out of one row: out[3 i + c] = the sum over t < tap_count of
// weights[i * tap_count + t] * row[3 (first[i] + t) + c]. Reads one float past the last tap.
void mix_columns(const float* row, std::span<const int64_t> first, const float* weights,
                 int64_t tap_count, float* out);

}  // namespace yard::images
