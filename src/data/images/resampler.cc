// Separable. Bilinear: rows are mixed first, for that loop runs over whole rows and vectorises;
// then columns, of far fewer rows. Between the two nothing is rounded to 8 bits, as Pillow does,
// which mixes columns first; with weights that are not negative the order is of no consequence.
// Bicubic: rounded between, in Pillow's order. Overshoot is cut off at black and white after either
// step, so that here the order would show.
#include "images/resampler_internal.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace yard::images {
namespace {

// libjpeg gives its rows in groups; asking for a group at a time saves calls.
constexpr int64_t kRowsAtOnce = 4;
constexpr size_t kKeepBytesMax = size_t{32} << 20;

Axis x_axis(const View& view) {
  return {double(view.part_x), double(view.part_width),
          view.scaled_width,   view.left,
          view.width,          view.flip};
}

Axis y_axis(const View& view) {
  return {double(view.part_y), double(view.part_height),
          view.scaled_height,  view.top,
          view.height,         false};
}

Axis shrunk(Axis axis, int denominator) {
  axis.begin /= denominator;
  axis.size /= denominator;
  return axis;
}

// The largest reduction that leaves the view's resolution.
int denominator_for(const RowSource& source, const Axis& columns, const Axis& rows) {
  for (const int denominator : {8, 4, 2}) {
    if (source.can_scale_by(denominator) && columns.size / denominator >= double(columns.scaled) &&
        rows.size / denominator >= double(rows.scaled))
      return denominator;
  }
  return 1;
}

// Pillow 13 takes rows first where that leaves it less to do, and columns otherwise, as all
// versions before do always. (Found by comparing its results with those of either order, tested in
// tests/conformance/test_photos.py.)
bool takes_rows_first(const View& view) {
  const int64_t fewer_rows = view.part_height - view.scaled_height;
  const int64_t fewer_columns = view.part_width - view.scaled_width;
  return fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
}

int64_t divide_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

Scaling scaling_of(const RenderOptions& options) {
  Scaling scaling;
  if (options.type == PixelType::kUint8) return scaling;
  for (size_t c = 0; c < 3; ++c) {
    YARD_CHECK(options.std[c] > 0);
    scaling.factor[c] = 1.0F / (255.0F * options.std[c]);
    scaling.bias[c] = -options.mean[c] / options.std[c];
  }
  return scaling;
}

void check(const RowSource& source, Turn turn, const View& view, const RenderOptions& options,
           std::span<std::byte> out) {
  const int64_t width = turn.transposed ? source.height() : source.width();
  const int64_t height = turn.transposed ? source.width() : source.height();
  const auto lies_in = [](int64_t begin, int64_t size, int64_t length) {
    return begin >= 0 && size >= 1 && begin <= length - size;
  };
  YARD_CHECK(lies_in(view.part_x, view.part_width, width));
  YARD_CHECK(lies_in(view.part_y, view.part_height, height));
  YARD_CHECK(view.width <= 65535 && lies_in(view.left, view.width, view.scaled_width));
  YARD_CHECK(view.height <= 65535 && lies_in(view.top, view.height, view.scaled_height));
  YARD_CHECK(out.size() == size_t(view.width) * size_t(view.height) * 3 * size_bytes(options.type));
}

// Puts finished rows where they belong in the caller's memory.
template <typename T>
class Writer {
 public:
  // `columns` and `rows` of the stored picture, as they come.
  Writer(T* out, int64_t columns, int64_t rows, bool transposed, Layout layout,
         const Scaling& scaling, std::vector<std::byte>& turned)
      : out_(out),
        columns_(columns),
        rows_(rows),
        transposed_(transposed),
        planar_(layout == Layout::kPlanar),
        scaling_(scaling),
        turned_(turned) {
    if (transposed) turned_.resize(size_t(columns) * 3 * sizeof(T));
  }

  void write(const float* pixels, int64_t row) {
    const size_t plane = size_t(columns_ * rows_);
    const auto count = size_t(columns_);
    if (transposed_) {
      write_column(pixels, row);
    } else if (planar_) {
      T* to = out_ + row * columns_;
      write_planar(pixels, count, scaling_, to, to + plane, to + 2 * plane);
    } else {
      write_interleaved(pixels, count, scaling_, out_ + row * columns_ * 3);
    }
  }

 private:
  void write_column(const float* pixels, int64_t column) {
    auto* row = reinterpret_cast<T*>(turned_.data());
    write_planar(pixels, size_t(columns_), scaling_, row, row + columns_, row + 2 * columns_);
    const int64_t pixel_step = planar_ ? 1 : 3;
    const int64_t channel_step = planar_ ? columns_ * rows_ : 1;
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t i = 0; i < columns_; ++i)
        out_[c * channel_step + (i * rows_ + column) * pixel_step] = row[c * columns_ + i];
    }
  }

  T* out_;
  int64_t columns_;
  int64_t rows_;
  bool transposed_;
  bool planar_;
  Scaling scaling_;
  std::vector<std::byte>& turned_;
};

// Weights of up to kFewRows rows in units of 2^-14, which must still add up to one.
void quantise(std::span<const float> weights, std::vector<int16_t>& out) {
  constexpr int kOne = 1 << 14;
  int total = 0;
  size_t largest = 0;
  out.clear();
  for (size_t t = 0; t < weights.size(); ++t) {
    out.push_back(int16_t(std::lrintf(weights[t] * kOne)));
    total += out.back();
    if (weights[t] > weights[largest]) largest = t;
  }
  out[largest] = int16_t(out[largest] + kOne - total);
}

}  // namespace

void Resampler::Ring::resize(int64_t row_count, int64_t row_pixels) {
  constexpr int64_t kCacheLineBytes = 64;
  row_count_ = row_count;
  row_bytes_ = divide_up(row_pixels * kPixelBytes + kRowPadding, kCacheLineBytes) * kCacheLineBytes;
  bytes_.resize(size_t(row_count_ * row_bytes_ + 2 * kCacheLineBytes));
  const auto address = int64_t(reinterpret_cast<uintptr_t>(bytes_.data()));
  first_ = bytes_.data() + divide_up(address, kCacheLineBytes) * kCacheLineBytes - address +
           kRowMisalignment;
}

// Rows come into the ring in order, at their number modulo its size.
Status Resampler::read_until(RowSource& source, int64_t end) {
  while (have_ < end) {
    const int64_t count = std::min(kRowsAtOnce, rows_.end - have_);
    targets_.clear();
    for (int64_t i = 0; i < count; ++i)
      targets_.push_back((columns_first_ ? fresh_ : ring_).row(have_ + i));
    YARD_TRY(source.read_rows(targets_));
    if (columns_first_) {
      for (int64_t i = 0; i < count; ++i)
        mix_columns_of(targets_[size_t(i)] + skipped_ * kPixelBytes, ring_.row(have_ + i));
    }
    have_ += count;
  }
  return Ok{};
}

std::span<const uint8_t* const> Resampler::inputs_of(int64_t row) {
  const int64_t offset = columns_first_ ? 0 : skipped_ * kPixelBytes;
  inputs_.clear();
  for (int64_t t = 0; t < rows_.counts[size_t(row)]; ++t)
    inputs_.push_back(ring_.row(rows_.first[size_t(row)] + t) + offset);
  return inputs_;
}

// With few rows in units of kFewRowsUnit.
void Resampler::mix_rows_of(int64_t row, float* out) {
  const auto inputs = inputs_of(row);
  const std::span weights =
      std::span(rows_.weights).subspan(size_t(row * rows_.stride), inputs.size());
  const auto value_count = size_t(row_pixels_ * kPixelBytes);
  if (!has_few_rows_) {
    mix_rows(inputs, weights.data(), value_count, out);
  } else {
    quantise(weights, few_weights_);
    mix_few_rows(inputs, few_weights_.data(), value_count, out);
  }
}

void Resampler::mix_columns_of(const uint8_t* row, uint8_t* out) {
  constexpr float kOne = 1;
  mix_rows({&row, 1}, &kOne, size_t((columns_.end - columns_.begin) * kPixelBytes), mixed_.data());
  mix_columns(mixed_.data(), column_first_, column_weights_.data(), column_stride_,
              finished_.data());
  round_levels(finished_.data(), column_first_.size() * size_t(kPixelBytes), out);
}

void Resampler::finish_row(int64_t row) {
  if (columns_first_) return mix_rows_of(row, finished_.data());
  mix_rows_of(row, mixed_.data());
  if (is_rounded_between_) {
    constexpr float kOne = 1;
    const auto value_count = size_t(row_pixels_ * kPixelBytes);
    rounded_.resize(value_count + size_t(kRowPadding));
    round_levels(mixed_.data(), value_count, rounded_.data());
    const uint8_t* const rounded = rounded_.data();
    mix_rows({&rounded, 1}, &kOne, value_count, mixed_.data());
  }
  mix_columns(mixed_.data(), column_first_, column_weights_.data(), column_stride_,
              finished_.data());
}

void Resampler::prepare_columns() {
  const float unit = !columns_first_ && has_few_rows_ ? kFewRowsUnit : 1.0F;
  const size_t count = columns_.first.size();
  column_stride_ = size_t(columns_.count_max + 1) / 2 * 2;
  column_weights_.assign(count * column_stride_ * 4, 0.0F);
  column_first_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    column_first_[i] = columns_.first[i] - int32_t(columns_.begin);
    for (size_t t = 0; t < size_t(columns_.counts[i]); ++t)
      std::fill_n(&column_weights_[(i * column_stride_ + t) * 4], 4,
                  columns_.weights[i * size_t(columns_.stride) + t] * unit);
  }
  // Taps of weight zero may lie past the row: what they read must be numbers.
  const auto input_values = size_t((columns_.end - columns_.begin) * kPixelBytes);
  mixed_.assign(input_values + column_stride_ * 4 + size_t(kRowPadding), 0.0F);
  finished_.resize(count * 4 + size_t(kRowPadding));
}

void Resampler::prepare_rows(int64_t source_pixels) {
  have_ = rows_.begin;
  const int64_t ring_rows = std::min(rows_.count_max + kRowsAtOnce, rows_.end - rows_.begin);
  row_pixels_ = columns_first_ ? int64_t(columns_.first.size()) : columns_.end - columns_.begin;
  ring_.resize(ring_rows, columns_first_ ? row_pixels_ : source_pixels);
  if (columns_first_) fresh_.resize(kRowsAtOnce, source_pixels);
}

void Resampler::release_large_buffers() {
  if (ring_.capacity() + fresh_.capacity() +
          (column_weights_.capacity() + mixed_.capacity()) * sizeof(float) >
      kKeepBytesMax)
    *this = Resampler();
}

Status Resampler::render(RowSource& source, Turn turn, const View& view,
                         const RenderOptions& options, std::span<std::byte> out) {
  check(source, turn, view, options, out);
  Axis x = x_axis(view), y = y_axis(view);
  if (turn.mirror_x) x = mirrored(x, turn.transposed ? source.height() : source.width());
  if (turn.mirror_y) y = mirrored(y, turn.transposed ? source.width() : source.height());
  if (turn.transposed) std::swap(x, y);

  const int denominator = options.dct_scaling ? denominator_for(source, x, y) : 1;
  make_taps(shrunk(x, denominator), divide_up(source.width(), denominator), options.filter,
            columns_);
  make_taps(shrunk(y, denominator), divide_up(source.height(), denominator), options.filter, rows_);
  const Region wanted = {columns_.begin, rows_.begin, columns_.end - columns_.begin,
                         rows_.end - rows_.begin};
  YARD_ASSIGN(const Region given, source.start(denominator, wanted));
  skipped_ = wanted.x - given.x;
  is_rounded_between_ = options.filter == Filter::kBicubic;
  // The order is that of the upright picture.
  columns_first_ = is_rounded_between_ && takes_rows_first(view) == turn.transposed;
  // Rounding to whole levels is done to rows in whole levels.
  has_few_rows_ = rows_.count_max <= int32_t(kFewRows) && (columns_first_ || !is_rounded_between_);
  prepare_columns();
  prepare_rows(given.width);
  Scaling scaling = scaling_of(options);
  if (columns_first_ && has_few_rows_) scaling.unit = kFewRowsUnit;

  const auto render_rows = [&](auto* pixels) -> Status {
    Writer writer(pixels, x.count, y.count, turn.transposed, options.layout, scaling, turned_);
    for (int64_t i = 0; i < y.count; ++i) {
      // Rows come from the top, so a picture that is mirrored is filled from the bottom.
      const int64_t row = y.reversed ? y.count - 1 - i : i;
      YARD_TRY(read_until(source, rows_.first[size_t(row)] + rows_.counts[size_t(row)]));
      finish_row(row);
      writer.write(finished_.data(), row);
    }
    YARD_TRY(read_until(source, rows_.end));
    return source.finish();
  };
  Status done = Ok{};
  switch (options.type) {
    case PixelType::kUint8:
      done = render_rows(reinterpret_cast<uint8_t*>(out.data()));
      break;
    case PixelType::kFloat32:
      done = render_rows(reinterpret_cast<float*>(out.data()));
      break;
    case PixelType::kBfloat16:
      done = render_rows(reinterpret_cast<uint16_t*>(out.data()));
      break;
  }
  release_large_buffers();
  return done;
}

}  // namespace yard::images
