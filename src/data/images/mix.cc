#include "images/mix_internal.h"

#include <algorithm>

// Highway compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "images/mix.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace yard::images::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// All taps of a few lanes before the next lanes: the sums stay in a register.
void mix_rows(std::span<const uint8_t* const> rows, const float* weights, size_t count,
              float* out) {
  const hn::CappedTag<float, 16> lanes;
  const hn::Rebind<int32_t, decltype(lanes)> wide;
  const hn::Rebind<uint8_t, decltype(lanes)> bytes;
  for (size_t i = 0; i < count; i += hn::Lanes(lanes)) {
    auto sum = hn::Zero(lanes);
    for (size_t t = 0; t < rows.size(); ++t) {
      const auto levels = hn::ConvertTo(lanes, hn::PromoteTo(wide, hn::LoadU(bytes, rows[t] + i)));
      sum = hn::MulAdd(hn::Set(lanes, weights[t]), levels, sum);
    }
    hn::StoreU(sum, lanes, out + i);
  }
}

#if HWY_TARGET == HWY_SCALAR

// One lane at a time: neither halves nor pixels fit a vector.
void mix_few_rows(std::span<const uint8_t* const> rows, const int16_t* weights, size_t count,
                  float* out) {
  for (size_t i = 0; i < count; ++i) {
    int32_t sum = 0;
    for (size_t t = 0; t < rows.size(); ++t)
      sum += (rows[t][i] * 128 * weights[t] + (1 << 14)) >> 15;
    out[i] = float(sum);
  }
}

void mix_columns(const float* row, std::span<const int32_t> first, const float* weights,
                 size_t stride, float* out) {
  for (const int32_t begin : first) {
    std::fill_n(out, 4, 0.0F);
    for (size_t i = 0; i < stride * 4; ++i) out[i % 4] += weights[i] * row[size_t(begin) * 4 + i];
    weights += stride * 4;
    out += 4;
  }
}

#else

template <class Lanes, class Sum>
HWY_INLINE void store_as_floats(Lanes lanes, Sum sum, float* out) {
  const hn::Half<Lanes> half;
  const hn::Rebind<int32_t, decltype(half)> wide;
  const hn::Rebind<float, decltype(half)> floats;
  const auto low = hn::PromoteTo(wide, hn::LowerHalf(half, sum));
  const auto high = hn::PromoteTo(wide, hn::UpperHalf(half, sum));
  hn::StoreU(hn::ConvertTo(floats, low), floats, out);
  hn::StoreU(hn::ConvertTo(floats, high), floats, out + hn::Lanes(lanes) / 2);
}

// Levels times 2^7 and weights times 2^14 make, in a multiplication that keeps the upper half, sums
// in 1/64 of a level, which leave room for a bicubic filter's overshoot. Two vectors at a time
// share the loading of the weights.
void mix_few_rows(std::span<const uint8_t* const> rows, const int16_t* weights, size_t count,
                  float* out) {
  const hn::CappedTag<int16_t, 32> lanes;
  const hn::Rebind<uint8_t, decltype(lanes)> bytes;
  const size_t step = hn::Lanes(lanes);
  const auto product = [&](const uint8_t* in, auto weight) HWY_ATTR {
    const auto levels = hn::ShiftLeft<7>(hn::PromoteTo(lanes, hn::LoadU(bytes, in)));
    return hn::MulFixedPoint15(levels, weight);
  };
  for (size_t i = 0; i < count; i += step * 2) {
    auto first = hn::Zero(lanes), second = hn::Zero(lanes);
    for (size_t t = 0; t < rows.size(); ++t) {
      const auto weight = hn::Set(lanes, weights[t]);
      first = hn::Add(first, product(rows[t] + i, weight));
      second = hn::Add(second, product(rows[t] + i + step, weight));
    }
    store_as_floats(lanes, first, out + i);
    store_as_floats(lanes, second, out + i + step);
  }
}

// One instruction does a tap, or two where vectors have eight lanes. kStride: known to the
// compiler, or 0.
template <size_t kStride>
HWY_INLINE void mix_columns_by(const float* row, std::span<const int32_t> first,
                               const float* weights, size_t given_stride, float* out) {
  const hn::CappedTag<float, 8> lanes;
  const hn::CappedTag<float, 4> pixel;
  const size_t step = hn::Lanes(lanes);
  const size_t stride = kStride > 0 ? kStride : given_stride;
  for (const int32_t begin : first) {
    const float* in = row + size_t(begin) * 4;
    auto sum = hn::Mul(hn::LoadU(lanes, weights), hn::LoadU(lanes, in));
    for (size_t i = step; i < stride * 4; i += step)
      sum = hn::MulAdd(hn::LoadU(lanes, weights + i), hn::LoadU(lanes, in + i), sum);
#if HWY_MAX_BYTES >= 32
    hn::StoreU(hn::Add(hn::LowerHalf(pixel, sum), hn::UpperHalf(pixel, sum)), pixel, out);
#else
    hn::StoreU(sum, pixel, out);
#endif
    weights += stride * 4;
    out += 4;
  }
}

void mix_columns(const float* row, std::span<const int32_t> first, const float* weights,
                 size_t stride, float* out) {
  switch (stride) {
    case 2:
      return mix_columns_by<2>(row, first, weights, stride, out);
    case 4:
      return mix_columns_by<4>(row, first, weights, stride, out);
    case 6:
      return mix_columns_by<6>(row, first, weights, stride, out);
    case 8:
      return mix_columns_by<8>(row, first, weights, stride, out);
    default:
      return mix_columns_by<0>(row, first, weights, stride, out);
  }
}

#endif

using Lanes = hn::CappedTag<float, 16>;
using Floats = hn::Vec<Lanes>;

HWY_INLINE void store(Floats value, float* out) {
  hn::StoreU(value, Lanes(), out);
}

HWY_INLINE void store(Floats value, uint8_t* out) {
  const hn::Rebind<uint8_t, Lanes> bytes;
  hn::StoreU(hn::DemoteTo(bytes, hn::NearestInt(value)), bytes, out);
}

void widen_pixels(const uint8_t* rgb, size_t count, uint8_t* rgbx) {
  const hn::CappedTag<uint8_t, 16> bytes;
  const size_t step = hn::Lanes(bytes);
  size_t i = 0;
  for (; i + step <= count; i += step) {
    hn::Vec<decltype(bytes)> r, g, b;
    hn::LoadInterleaved3(bytes, rgb + i * 3, r, g, b);
    hn::StoreInterleaved4(r, g, b, b, bytes, rgbx + i * 4);
  }
  for (; i < count; ++i) std::copy_n(rgb + i * 3, 3, rgbx + i * 4);
}

void narrow_pixels(const uint8_t* rgbx, size_t count, uint8_t* rgb) {
  const hn::CappedTag<uint8_t, 16> bytes;
  const size_t step = hn::Lanes(bytes);
  size_t i = 0;
  for (; i + step <= count; i += step) {
    hn::Vec<decltype(bytes)> r, g, b, unused;
    hn::LoadInterleaved4(bytes, rgbx + i * 4, r, g, b, unused);
    hn::StoreInterleaved3(r, g, b, bytes, rgb + i * 3);
  }
  for (; i < count; ++i) std::copy_n(rgbx + i * 4, 3, rgb + i * 3);
}

void round_levels(const float* levels, size_t count, uint8_t* out) {
  const size_t step = hn::Lanes(Lanes());
  for (size_t i = 0; i < count; i += step) store(hn::LoadU(Lanes(), levels + i), out + i);
}

// Half to even; there is no infinity and no not-a-number to care for.
HWY_INLINE auto to_bfloat16(Floats value) {
  const hn::Rebind<uint32_t, Lanes> wide;
  const hn::Rebind<uint16_t, Lanes> narrow;
  const auto bits = hn::BitCast(wide, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(wide, 0x7fff)));
  return hn::TruncateTo(narrow, hn::ShiftRight<16>(rounded));
}

HWY_INLINE void store(Floats value, uint16_t* out) {
  hn::StoreU(to_bfloat16(value), hn::Rebind<uint16_t, Lanes>(), out);
}

HWY_INLINE void store_interleaved(Floats r, Floats g, Floats b, float* out) {
  hn::StoreInterleaved3(r, g, b, Lanes(), out);
}

HWY_INLINE void store_interleaved(Floats r, Floats g, Floats b, uint16_t* out) {
  hn::StoreInterleaved3(to_bfloat16(r), to_bfloat16(g), to_bfloat16(b),
                        hn::Rebind<uint16_t, Lanes>(), out);
}

HWY_INLINE void store_interleaved(Floats r, Floats g, Floats b, uint8_t* out) {
  const hn::Rebind<uint8_t, Lanes> bytes;
  const auto level = [&](Floats value) { return hn::DemoteTo(bytes, hn::NearestInt(value)); };
  hn::StoreInterleaved3(level(r), level(g), level(b), bytes, out);
}

// Calls body(first pixel, r, g, b) for each vector of pixels.
template <typename Body>
HWY_INLINE void for_each_vector(const float* row, size_t count, const Scaling& scaling, Body body) {
  const Lanes lanes;
  const auto low = hn::Zero(lanes), high = hn::Set(lanes, 255.0F);
  const auto unit = hn::Set(lanes, scaling.unit);
  const auto scaled = [&](Floats value, size_t c) HWY_ATTR {
    return hn::MulAdd(hn::Clamp(hn::Mul(value, unit), low, high), hn::Set(lanes, scaling.factor[c]),
                      hn::Set(lanes, scaling.bias[c]));
  };
  for (size_t i = 0; i < count; i += hn::Lanes(lanes)) {
    Floats r, g, b, unused;
    hn::LoadInterleaved4(lanes, row + i * 4, r, g, b, unused);
    body(i, scaled(r, 0), scaled(g, 1), scaled(b, 2));
  }
}

template <typename T>
void planar(const float* row, size_t count, const Scaling& scaling, T* r, T* g, T* b) {
  const size_t step = hn::Lanes(Lanes());
  for_each_vector(row, count, scaling, [&](size_t i, Floats vr, Floats vg, Floats vb) {
    if (i + step <= count) {
      store(vr, r + i);
      store(vg, g + i);
      store(vb, b + i);
      return;
    }
    HWY_ALIGN T last[16];
    const auto store_last = [&](Floats value, T* out) {
      store(value, last);
      std::copy_n(last, count - i, out + i);
    };
    store_last(vr, r);
    store_last(vg, g);
    store_last(vb, b);
  });
}

template <typename T>
void interleaved(const float* row, size_t count, const Scaling& scaling, T* rgb) {
  const size_t step = hn::Lanes(Lanes());
  for_each_vector(row, count, scaling, [&](size_t i, Floats r, Floats g, Floats b) {
    if (i + step <= count) {
      store_interleaved(r, g, b, rgb + i * 3);
      return;
    }
    HWY_ALIGN T last[3 * 16];
    store_interleaved(r, g, b, last);
    std::copy_n(last, (count - i) * 3, rgb + i * 3);
  });
}

// HWY_EXPORT takes no templates.
#define YARD_WRITERS(T, name)                                                                    \
  void planar_##name(const float* row, size_t count, const Scaling& scaling, T* r, T* g, T* b) { \
    planar(row, count, scaling, r, g, b);                                                        \
  }                                                                                              \
  void interleaved_##name(const float* row, size_t count, const Scaling& scaling, T* rgb) {      \
    interleaved(row, count, scaling, rgb);                                                       \
  }
YARD_WRITERS(uint8_t, bytes)
YARD_WRITERS(uint16_t, bfloat16s)
YARD_WRITERS(float, floats)
#undef YARD_WRITERS

}  // namespace yard::images::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::images {

HWY_EXPORT(mix_rows);
HWY_EXPORT(mix_few_rows);
HWY_EXPORT(mix_columns);
HWY_EXPORT(round_levels);
HWY_EXPORT(widen_pixels);
HWY_EXPORT(narrow_pixels);

void mix_rows(std::span<const uint8_t* const> rows, const float* weights, size_t count,
              float* out) {
  HWY_DYNAMIC_DISPATCH(mix_rows)(rows, weights, count, out);
}

void mix_few_rows(std::span<const uint8_t* const> rows, const int16_t* weights, size_t count,
                  float* out) {
  HWY_DYNAMIC_DISPATCH(mix_few_rows)(rows, weights, count, out);
}

void mix_columns(const float* row, std::span<const int32_t> first, const float* weights,
                 size_t stride, float* out) {
  HWY_DYNAMIC_DISPATCH(mix_columns)(row, first, weights, stride, out);
}

void widen_pixels(const uint8_t* rgb, size_t count, uint8_t* rgbx) {
  HWY_DYNAMIC_DISPATCH(widen_pixels)(rgb, count, rgbx);
}

void narrow_pixels(const uint8_t* rgbx, size_t count, uint8_t* rgb) {
  HWY_DYNAMIC_DISPATCH(narrow_pixels)(rgbx, count, rgb);
}

void round_levels(const float* levels, size_t count, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(round_levels)(levels, count, out);
}

#define YARD_WRITERS(T, name)                                                                   \
  HWY_EXPORT(planar_##name);                                                                    \
  HWY_EXPORT(interleaved_##name);                                                               \
  template <>                                                                                   \
  void write_planar(const float* row, size_t count, const Scaling& scaling, T* r, T* g, T* b) { \
    HWY_DYNAMIC_DISPATCH(planar_##name)(row, count, scaling, r, g, b);                          \
  }                                                                                             \
  template <>                                                                                   \
  void write_interleaved(const float* row, size_t count, const Scaling& scaling, T* rgb) {      \
    HWY_DYNAMIC_DISPATCH(interleaved_##name)(row, count, scaling, rgb);                         \
  }
YARD_WRITERS(uint8_t, bytes)
YARD_WRITERS(uint16_t, bfloat16s)
YARD_WRITERS(float, floats)
#undef YARD_WRITERS

}  // namespace yard::images
#endif
