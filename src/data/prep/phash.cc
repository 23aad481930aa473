#include "prep/phash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

namespace yard::prep {
namespace {

constexpr int kSide = 32;       // of the picture that is transformed
constexpr int kLowSide = 8;     // of the frequencies that count
constexpr int kFixedBits = 22;  // of a weight's fraction, as in Pillow
constexpr int kSplitBits = 11;

// sinc(x) * sinc(x / 3); sin(3a) = sin(a) (3 - 4 sin(a)^2).
double lanczos(double x) {
  if (x == 0) return 1;
  if (x < -3 || x >= 3) return 0;
  const double a = x * (std::numbers::pi / 3);
  const double sine = std::sin(a);
  return sine * sine * (3 - 4 * sine * sine) / (3 * a * a);
}

// The weights of the levels that one output level is made of.
struct Taps {
  int first = 0;
  std::vector<int32_t> weights;
};

Taps taps_of(int output, double scale, int input_size) {
  const double filter_scale = std::max(scale, 1.0);
  const double support = 3 * filter_scale;
  const double center = (output + 0.5) * scale;
  const int first = std::max(0, static_cast<int>(center - support + 0.5));
  const int end = std::min(input_size, static_cast<int>(center + support + 0.5));
  std::vector<double> weights;
  double sum = 0;
  for (int x = first; x < end; ++x) {
    weights.push_back(lanczos((x - center + 0.5) / filter_scale));
    sum += weights.back();
  }
  Taps taps{first, {}};
  for (const double weight : weights) {
    const double fixed = (sum == 0 ? weight : weight / sum) * (1 << kFixedBits);
    taps.weights.push_back(static_cast<int32_t>(fixed + (fixed < 0 ? -0.5 : 0.5)));
  }
  return taps;
}

std::vector<Taps> all_taps(int input_size, int output_size) {
  std::vector<Taps> taps;
  const double scale = static_cast<double>(input_size) / output_size;
  for (int i = 0; i < output_size; ++i) taps.push_back(taps_of(i, scale, input_size));
  return taps;
}

uint8_t to_level(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFixedBits, 0, 255));
}

// Pairs of 16-bit numbers are what the processor multiplies and adds fastest.
struct SplitTaps {
  int first = 0;
  std::vector<int16_t> high;
  std::vector<int16_t> low;
};

SplitTaps split(const Taps& taps) {
  SplitTaps parts{taps.first, {}, {}};
  for (const int32_t weight : taps.weights) {
    parts.high.push_back(static_cast<int16_t>(weight >> kSplitBits));
    parts.low.push_back(static_cast<int16_t>(weight & ((1 << kSplitBits) - 1)));
  }
  return parts;
}

int32_t dot(const int16_t* a, const int16_t* b, size_t count) {
  int32_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

GreyPicture resize_rows(const GreyPicture& in, int width) {
  GreyPicture out{width, in.height, std::vector<uint8_t>(size_t(width) * in.height)};
  std::vector<SplitTaps> taps;
  for (const Taps& each : all_taps(in.width, width)) taps.push_back(split(each));
  std::vector<int16_t> row(in.width);
  for (int y = 0; y < in.height; ++y) {
    std::copy_n(&in.levels[size_t(y) * in.width], in.width, row.begin());
    for (int x = 0; x < width; ++x) {
      const SplitTaps& tap = taps[x];
      const int16_t* levels = row.data() + tap.first;
      const int32_t high = dot(levels, tap.high.data(), tap.high.size());
      const int32_t low = dot(levels, tap.low.data(), tap.low.size());
      out.levels[size_t(y) * width + x] =
          to_level((1 << (kFixedBits - 1)) + (high << kSplitBits) + low);
    }
  }
  return out;
}

GreyPicture resize_columns(const GreyPicture& in, int height) {
  GreyPicture out{in.width, height, std::vector<uint8_t>(size_t(in.width) * height)};
  std::vector<int32_t> sums(in.width);
  int y = 0;
  for (const Taps& taps : all_taps(in.height, height)) {
    std::ranges::fill(sums, 1 << (kFixedBits - 1));
    for (size_t i = 0; i < taps.weights.size(); ++i) {
      const uint8_t* row = &in.levels[(taps.first + i) * in.width];
      for (int x = 0; x < in.width; ++x) sums[x] += row[x] * taps.weights[i];
    }
    std::ranges::transform(sums, &out.levels[size_t(y++) * in.width], to_level);
  }
  return out;
}

using Cosines = std::array<std::array<double, kSide>, kLowSide>;

const Cosines& cosines() {
  static const Cosines table = [] {
    Cosines made{};
    for (int k = 0; k < kLowSide; ++k)
      for (int n = 0; n < kSide; ++n)
        made[k][n] = 2 * std::cos(std::numbers::pi * k * (2 * n + 1) / (2.0 * kSide));
    return made;
  }();
  return table;
}

std::array<double, kLowSide * kLowSide> low_frequencies(const GreyPicture& picture) {
  const Cosines& table = cosines();
  std::array<std::array<double, kSide>, kLowSide> columns{};  // transformed downwards
  for (int k = 0; k < kLowSide; ++k)
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x)
        columns[k][x] += table[k][y] * picture.levels[size_t(y) * kSide + x];
  std::array<double, kLowSide * kLowSide> low{};
  for (int k = 0; k < kLowSide; ++k)
    for (int l = 0; l < kLowSide; ++l)
      for (int x = 0; x < kSide; ++x) low[k * kLowSide + l] += table[l][x] * columns[k][x];
  return low;
}

}  // namespace

GreyPicture to_grey(const images::Picture& picture) {
  GreyPicture grey{picture.width, picture.height, {}};
  const size_t count = size_t(picture.width) * picture.height;
  grey.levels.resize(count);
  const uint8_t* in = picture.pixels.data();
  for (size_t i = 0; i < count; ++i, in += 3)
    grey.levels[i] = uint8_t((in[0] * 19595U + in[1] * 38470U + in[2] * 7471U + 0x8000U) >> 16);
  return grey;
}

GreyPicture resize_lanczos(const GreyPicture& picture, int width, int height) {
  YARD_CHECK(width > 0 && height > 0 && picture.width > 0 && picture.height > 0);
  const bool same_width = picture.width == width;
  const GreyPicture rows = same_width ? GreyPicture{} : resize_rows(picture, width);
  const GreyPicture& narrow = same_width ? picture : rows;
  return picture.height == height ? narrow : resize_columns(narrow, height);
}

GreyPicture reduce(const GreyPicture& picture, int factor) {
  YARD_CHECK(factor >= 1 && factor <= picture.width && factor <= picture.height);
  if (factor == 1) return picture;
  GreyPicture out{picture.width / factor, picture.height / factor, {}};
  out.levels.resize(size_t(out.width) * out.height);
  std::vector<uint32_t> sums(out.width);
  const uint32_t area = uint32_t(factor) * factor;
  for (int y = 0; y < out.height; ++y) {
    std::ranges::fill(sums, area / 2);
    for (int i = 0; i < factor; ++i) {
      const uint8_t* row = &picture.levels[size_t(y * factor + i) * picture.width];
      for (int x = 0; x < out.width; ++x)
        for (int j = 0; j < factor; ++j) sums[x] += *row++;
    }
    for (int x = 0; x < out.width; ++x)
      out.levels[size_t(y) * out.width + x] = uint8_t(sums[x] / area);
  }
  return out;
}

uint64_t phash(const GreyPicture& picture) {
  const auto low = low_frequencies(resize_lanczos(picture, kSide, kSide));
  auto sorted = low;
  std::ranges::sort(sorted);
  const double median = (sorted[sorted.size() / 2 - 1] + sorted[sorted.size() / 2]) / 2;
  uint64_t hash = 0;
  for (const double value : low) hash = hash << 1 | uint64_t(value > median);
  return hash;
}

std::string phash_text(uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

Result<uint64_t> parse_phash(std::string_view text) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size())
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is no perceptual hash: 16 hexadecimal digits", text)};
  return hash;
}

}  // namespace yard::prep
