// Triangle filter whose support grows with the reduction (antialiased), separable: rows are mixed
// first, for that loop runs over whole rows and vectorises; then columns, of far fewer rows.
//
// Pillow mixes columns first and rounds to 8 bits between; we do not round, so that the two differ
// by half a level between plus the last rounding: at most 1/255.
#include <algorithm>
#include <cmath>

#include "images/mix_internal.h"
#include "images/resample_internal.h"

namespace yard::images {
namespace {

// Output i is the sum over t of weights[i * tap_count + t] * input[first[i] + t].
struct Taps {
  int64_t tap_count = 0;
  std::vector<int64_t> first;
  std::vector<float> weights;  // zero where an output has fewer taps
};

Taps make_taps(int64_t input_size, const Span1d& output) {
  const double scale = double(input_size) / double(output.size);
  const double support = std::max(scale, 1.0);
  Taps taps;
  taps.tap_count = std::min(input_size, int64_t(std::ceil(support)) * 2 + 1);
  taps.first.resize(size_t(output.count));
  taps.weights.assign(size_t(output.count * taps.tap_count), 0.0F);
  std::vector<double> raw(static_cast<size_t>(taps.tap_count));
  for (int64_t i = 0; i < output.count; ++i) {
    const double center = (double(output.begin + i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(0, int64_t(center - support + 0.5));
    const int64_t end = std::min(input_size, int64_t(center + support + 0.5));
    // All taps must lie inside the input, the ones of weight zero too.
    const int64_t first = std::min(begin, input_size - taps.tap_count);
    double total = 0;
    for (int64_t t = 0; t < taps.tap_count; ++t) {
      const int64_t at = first + t;
      const double distance = std::abs((double(at) + 0.5 - center) / support);
      raw[size_t(t)] = at < begin || at >= end ? 0.0 : std::max(0.0, 1.0 - distance);
      total += raw[size_t(t)];
    }
    taps.first[size_t(i)] = first;
    for (int64_t t = 0; t < taps.tap_count; ++t)
      taps.weights[size_t(i * taps.tap_count + t)] = float(raw[size_t(t)] / total);
  }
  return taps;
}

}  // namespace

std::vector<float> resample(const Picture& picture, const Span1d& x, const Span1d& y) {
  Taps columns = make_taps(picture.width, x);
  const Taps rows = make_taps(picture.height, y);
  const int64_t left = columns.first.front();
  const int64_t used_width = columns.first.back() + columns.tap_count - left;
  for (int64_t& first : columns.first) first -= left;

  std::vector<float> out(size_t(x.count * y.count * 3));
  std::vector<float> row(size_t(used_width * 3 + 1));  // its last float is read, never used
  std::vector<const uint8_t*> sources;
  std::vector<float> weights;
  for (int64_t i = 0; i < y.count; ++i) {
    sources.clear();
    weights.clear();
    for (int64_t t = 0; t < rows.tap_count; ++t) {
      const float weight = rows.weights[size_t(i * rows.tap_count + t)];
      if (weight == 0.0F) continue;
      weights.push_back(weight);
      sources.push_back(picture.pixels.data() +
                        ((rows.first[size_t(i)] + t) * picture.width + left) * 3);
    }
    mix_rows(sources, weights.data(), size_t(used_width * 3), row.data());
    mix_columns(row.data(), columns.first, columns.weights.data(), columns.tap_count,
                out.data() + i * x.count * 3);
  }
  return out;
}

Picture resize(const Picture& picture, int width, int height) {
  YARD_CHECK(width >= 1 && width <= 65535 && height >= 1 && height <= 65535);
  YARD_CHECK(picture.width >= 1 && picture.height >= 1);
  YARD_CHECK(picture.pixels.size() == size_t(picture.width) * size_t(picture.height) * 3);
  if (width == picture.width && height == picture.height) return picture;
  const std::vector<float> levels = resample(picture, {width, 0, width}, {height, 0, height});
  Picture resized{width, height, std::vector<uint8_t>(levels.size())};
  // Weights are not negative and add up to one, so levels stay in range up to rounding.
  for (size_t i = 0; i < levels.size(); ++i) resized.pixels[i] = uint8_t(levels[i] + 0.5F);
  return resized;
}

}  // namespace yard::images
