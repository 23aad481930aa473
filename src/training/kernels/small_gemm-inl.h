// Products of matrices that fit a core's caches, and the reading of rows into their padded form.
// Included once per target of Highway by the file that uses it.
//
// A padded matrix is f32, row after row; its rows are a multiple of kTileRows, its width a multiple
// of kLanesMax, and what pads it is zero.
#if defined(YARD_KERNELS_SMALL_GEMM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef YARD_KERNELS_SMALL_GEMM_INL
#undef YARD_KERNELS_SMALL_GEMM_INL
#else
#define YARD_KERNELS_SMALL_GEMM_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"

HWY_BEFORE_NAMESPACE();
namespace yard::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanesMax = 16;
constexpr size_t kTileRows = 8;
using F32 = hn::CappedTag<float, kLanesMax>;

HWY_INLINE size_t padded(size_t count) {
  return (count + kLanesMax - 1) / kLanesMax * kLanesMax;
}
HWY_INLINE size_t padded_rows(size_t count) {
  return (count + kTileRows - 1) / kTileRows * kTileRows;
}

enum class Left : uint8_t {
  kRows,
  kColumns
};  // a[m, k] lies at a[m * stride + k] or a[k * stride + m]
enum class Sum : uint8_t { kNew, kAdd };

// A tile of kTileRows rows and kVectors vectors of c: its sums stay in registers.
template <Left kLeft, size_t kVectors>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, size_t a_stride,
                              const float* HWY_RESTRICT b, size_t b_stride, size_t depth,
                              float* HWY_RESTRICT c, size_t c_stride, Sum sum) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<F32> sums[kTileRows][kVectors];
#pragma GCC unroll 8
  for (size_t m = 0; m < kTileRows; ++m)
#pragma GCC unroll 2
    for (size_t n = 0; n < kVectors; ++n)
      sums[m][n] = sum == Sum::kAdd ? hn::LoadU(d, c + m * c_stride + n * lanes) : hn::Zero(d);
  for (size_t k = 0; k < depth; ++k) {
    hn::Vec<F32> row[kVectors];
#pragma GCC unroll 2
    for (size_t n = 0; n < kVectors; ++n) row[n] = hn::LoadU(d, b + k * b_stride + n * lanes);
#pragma GCC unroll 8
    for (size_t m = 0; m < kTileRows; ++m) {
      const float factor = kLeft == Left::kRows ? a[m * a_stride + k] : a[k * a_stride + m];
      const auto factors = hn::Set(d, factor);
#pragma GCC unroll 2
      for (size_t n = 0; n < kVectors; ++n) sums[m][n] = hn::MulAdd(factors, row[n], sums[m][n]);
    }
  }
#pragma GCC unroll 8
  for (size_t m = 0; m < kTileRows; ++m)
#pragma GCC unroll 2
    for (size_t n = 0; n < kVectors; ++n) hn::StoreU(sums[m][n], d, c + m * c_stride + n * lanes);
}

// c [rows, columns] = a [rows, depth] * b [depth, columns], or added to c. rows: a multiple of
// kTileRows, columns of kLanesMax; c's rows follow each other as b's do.
template <Left kLeft>
void multiply(const float* a, size_t a_stride, const float* b, size_t b_stride, size_t rows,
              size_t columns, size_t depth, float* c, Sum sum) {
  const size_t lanes = hn::Lanes(F32());
  size_t n = 0;
  // Vectors outside, so that their part of b stays in the first cache.
  for (; n + 2 * lanes <= columns; n += 2 * lanes)
    for (size_t m = 0; m < rows; m += kTileRows)
      multiply_tile<kLeft, 2>(kLeft == Left::kRows ? a + m * a_stride : a + m, a_stride, b + n,
                              b_stride, depth, c + m * columns + n, columns, sum);
  for (; n < columns; n += lanes)
    for (size_t m = 0; m < rows; m += kTileRows)
      multiply_tile<kLeft, 1>(kLeft == Left::kRows ? a + m * a_stride : a + m, a_stride, b + n,
                              b_stride, depth, c + m * columns + n, columns, sum);
}

inline float f32_of(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

inline uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Rows `first` to `first + rows` of a head, `width` elements of each.
struct Block {
  size_t first = 0, rows = 0, width = 0;
};

// One row as f32 times `scale`.
inline void read_row(ConstRows from, size_t r, size_t width, Element element, float scale,
                     float* out) {
  const ptrdiff_t at = static_cast<ptrdiff_t>(r) * from.stride;
  if (element == Element::kF32) {
    const float* row = static_cast<const float*>(from.data) + at;
    for (size_t i = 0; i < width; ++i) out[i] = row[i] * scale;
  } else {
    const uint16_t* row = static_cast<const uint16_t*>(from.data) + at;
    for (size_t i = 0; i < width; ++i) out[i] = f32_of(row[i]) * scale;
  }
}

// -> [out_rows, out_width], padded.
inline void read_rows(ConstRows from, Block block, Element element, float scale, float* out,
                      size_t out_rows, size_t out_width) {
  for (size_t r = 0; r < out_rows; ++r, out += out_width) {
    const size_t width = r < block.rows ? block.width : 0;
    if (width > 0) read_row(from, block.first + r, width, element, scale, out);
    std::fill(out + width, out + out_width, 0.0F);
  }
}

// -> [block.width, out_width], a column for each row read; columns that pad are zero. `row_room`
// holds block.width floats.
inline void read_transposed(ConstRows from, Block block, Element element, float* out,
                            size_t out_width, float* row_room) {
  for (size_t r = 0; r < block.rows; ++r) {
    read_row(from, block.first + r, block.width, element, 1, row_room);
    for (size_t i = 0; i < block.width; ++i) out[i * out_width + r] = row_room[i];
  }
  for (size_t i = 0; i < block.width; ++i)
    std::fill(out + i * out_width + block.rows, out + (i + 1) * out_width, 0.0F);
}

// Rows of a padded matrix times `scale`, to their place in the head.
inline void write_rows(const float* in, size_t in_width, Block block, Element element, float scale,
                       Rows out) {
  for (size_t r = 0; r < block.rows; ++r, in += in_width) {
    const ptrdiff_t at = static_cast<ptrdiff_t>(block.first + r) * out.stride;
    if (element == Element::kF32) {
      float* row = static_cast<float*>(out.data) + at;
      for (size_t i = 0; i < block.width; ++i) row[i] = in[i] * scale;
    } else {
      uint16_t* row = static_cast<uint16_t*>(out.data) + at;
      for (size_t i = 0; i < block.width; ++i) row[i] = bf16_of(in[i] * scale);
    }
  }
}

}  // namespace yard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
