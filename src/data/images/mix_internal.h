// The inner loops of resampling, compiled for each vector width; the CPU's own is chosen at run
// time. Their results differ between CPUs by the rounding of fused multiply-adds alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace yard::images {

// All rows here have kRowPadding bytes (row_source_internal.h) past their last pixel, which may be
// read and written.

// One row out of several: out[i] = the sum over t of weights[t] * rows[t][i], for i < count.
void mix_rows(std::span<const uint8_t* const> rows, const float* weights, size_t count, float* out);

// The same in half the time for up to kFewRows rows, with weights in units of 2^-14 that add up to
// one, and sums in units of 1/64 of a level, each row rounded to one.
constexpr size_t kFewRows = 16;
constexpr float kFewRowsUnit = 1.0F / 64;
void mix_few_rows(std::span<const uint8_t* const> rows, const int16_t* weights, size_t count,
                  float* out);

// Pixels of four floats out of one row of such: out[i] = the sum over t < stride of weights[i *
// stride + t] * row[first[i] + t]; every weight stands there four times. stride is even, and a
// pixel past the last tap may be read.
void mix_columns(const float* row, std::span<const int32_t> first, const float* weights,
                 size_t stride, float* out);

// Pixels of three bytes to pixels of four, and back. No padding is needed on the side of three.
void widen_pixels(const uint8_t* rgb, size_t count, uint8_t* rgbx);
void narrow_pixels(const uint8_t* rgbx, size_t count, uint8_t* rgb);

// Levels, rounded and clamped to 8 bits.
void round_levels(const float* levels, size_t count, uint8_t* out);

// What becomes of a value: times unit makes a level, clamped to 0..255, times factor, plus bias;
// the last two per channel.
struct Scaling {
  float unit = 1;
  std::array<float, 3> factor = {1, 1, 1};
  std::array<float, 3> bias = {0, 0, 0};
};

// The last step: a row of `count` pixels of four floats into the three rows of a planar picture, or
// into one interleaved row. Types: uint8_t (rounded), float, uint16_t (bfloat16, rounded to even).
// Nothing past `count` is written.
template <typename T>
void write_planar(const float* row, size_t count, const Scaling& scaling, T* r, T* g, T* b);
template <typename T>
void write_interleaved(const float* row, size_t count, const Scaling& scaling, T* rgb);

}  // namespace yard::images
