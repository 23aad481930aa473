#include <algorithm>
#include <bit>
#include <cmath>

#include "base/clock.h"
#include "loader/sample_decoder_internal.h"
#include "telemetry/metric_names.h"

namespace yard::loader {
namespace {

// The two pointers and heads of an entry, so that many tiny pictures are not free.
constexpr uint64_t kEntryOverheadBytes = 192;

std::string_view trimmed(std::span<const std::byte> content) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// To nearest, ties to even; not-a-number cannot come.
uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

template <typename T>
T value_of(float value) {
  if constexpr (std::is_same_v<T, uint16_t>)
    return to_bfloat16(value);
  else
    return static_cast<T>(value);
}

// A square of a picture that has its final size already: no filter, only levels.
template <typename T>
void cut_into(const images::Picture& picture, const Draw& draw, size_t size,
              const images::RenderOptions& render, T* out) {
  const auto begin_of = [&](int length, double position) {
    return size_t(std::nearbyint(position * (double(length) - double(size))));
  };
  const size_t left = begin_of(picture.width, draw.x);
  const size_t top = begin_of(picture.height, draw.y);
  T table[3][256];
  for (size_t c = 0; c < 3; ++c)
    for (size_t level = 0; level < 256; ++level)
      table[c][level] = render.type == images::PixelType::kUint8
                            ? static_cast<T>(level)
                            : value_of<T>((float(level) / 255.0F - render.mean[c]) / render.std[c]);
  const bool is_planar = render.layout == images::Layout::kPlanar;
  for (size_t y = 0; y < size; ++y) {
    const uint8_t* row = picture.pixels.data() + ((top + y) * size_t(picture.width) + left) * 3;
    for (size_t x = 0; x < size; ++x) {
      const uint8_t* pixel = row + (draw.flip ? size - 1 - x : x) * 3;
      for (size_t c = 0; c < 3; ++c)
        out[is_planar ? (c * size + y) * size + x : (y * size + x) * 3 + c] = table[c][pixel[c]];
    }
  }
}

class Timed {
 public:
  Timed(Counter& first, Counter& second) : first_(first), second_(second) {}
  ~Timed() {
    const double seconds = std::chrono::duration<double>(Clock::real().now() - begin_).count();
    first_.add(seconds);
    second_.add(seconds);
  }

 private:
  Counter& first_;
  Counter& second_;
  const Clock::Monotonic begin_ = Clock::real().now();
};

}  // namespace

PictureCache::PictureCache(uint64_t sample_count, uint64_t bytes_max)
    : bytes_max_(bytes_max), entries_(bytes_max > 0 ? sample_count : 0) {}

std::shared_ptr<const PictureCache::Entry> PictureCache::find(uint64_t sample_id) const {
  if (!is_enabled()) return nullptr;
  std::lock_guard lock(mutex_);
  return entries_[sample_id];
}

void PictureCache::add(uint64_t sample_id, std::shared_ptr<const Entry> entry) {
  const uint64_t bytes = entry->picture.pixels.size() + entry->caption.size() + entry->key.size() +
                         kEntryOverheadBytes;
  std::lock_guard lock(mutex_);
  if (entries_[sample_id] != nullptr || bytes > bytes_max_ - bytes_) return;
  bytes_ += bytes;
  entries_[sample_id] = std::move(entry);
}

uint64_t PictureCache::size_bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

SampleDecoder::SampleDecoder(const DataSet& set, const LoaderOptions& options,
                             CounterRegistry& counters, LoaderMeters& meters)
    : set_(set),
      options_(options),
      cache_(set.sample_count(), options.cache_bytes_max),
      decode_seconds_(counters.counter(metric::kLoaderDecodeSeconds)),
      meters_(meters) {}

bool SampleDecoder::fill_from_cache(uint64_t sample_id, const Draw& draw,
                                    const SampleSlot& slot) const {
  const auto entry = cache_.find(sample_id);
  if (entry == nullptr) return false;
  slot.caption = entry->caption;
  slot.key = entry->key;
  cut(entry->picture, draw, slot);
  return true;
}

void SampleDecoder::cut(const images::Picture& picture, const Draw& draw,
                        const SampleSlot& slot) const {
  const auto size = size_t(slot.size.width);
  std::byte* out = slot.pixels.data();
  switch (options_.render.type) {
    case images::PixelType::kUint8:
      return cut_into(picture, draw, size, options_.render, reinterpret_cast<uint8_t*>(out));
    case images::PixelType::kFloat32:
      return cut_into(picture, draw, size, options_.render, reinterpret_cast<float*>(out));
    case images::PixelType::kBfloat16:
      return cut_into(picture, draw, size, options_.render, reinterpret_cast<uint16_t*>(out));
  }
}

Status SampleDecoder::fill(uint64_t sample_id, const EncodedSample& sample, const Draw& draw,
                           images::PictureReader& pictures, const SampleSlot& slot) {
  auto filled = [&]() -> Status {
    slot.caption = trimmed(sample.caption);
    slot.key = set_.key(sample.place);
    if (!cache_.is_enabled()) return decode(sample, draw, pictures, slot);
    auto entry = std::make_shared<PictureCache::Entry>();
    {
      const Timed timed(decode_seconds_, meters_.decode_seconds);
      YARD_ASSIGN(entry->picture, shrink(sample.image, pictures));
    }
    entry->caption = slot.caption;
    entry->key = slot.key;
    cut(entry->picture, draw, slot);
    cache_.add(sample_id, std::move(entry));
    return Ok{};
  }();
  if (filled) return Ok{};
  return std::move(filled).error().while_(
      sample.place.shard->where(sample.place.sample) + ": member '" +
      sample.place.shard->index().member_name(sample.place.sample, *sample.place.image) + "'");
}

Status SampleDecoder::decode(const EncodedSample& sample, const Draw& draw,
                             images::PictureReader& pictures, const SampleSlot& slot) {
  const Timed timed(decode_seconds_, meters_.decode_seconds);
  YARD_ASSIGN(const images::PictureInfo info, pictures.open(sample.image));
  const images::View view =
      draw.resized_seed
          ? images::random_resized_view(info.size, slot.size, *options_.random_resized_crop,
                                        *draw.resized_seed)
          : images::covering_view(info.size, slot.size, draw.x, draw.y, draw.flip);
  return pictures.render(view, options_.render, slot.pixels);
}

// In 8 bits, with no more than a crop can need.
Result<images::Picture> SampleDecoder::shrink(std::span<const std::byte> encoded,
                                              images::PictureReader& pictures) const {
  YARD_ASSIGN(const images::PictureInfo info, pictures.open(encoded));
  const int size = options_.image_size;
  images::Picture picture{.width = size, .height = size, .pixels = {}};
  images::View view = images::covering_view(info.size, {size, size});
  if (options_.random_crop) {
    const auto [width, height] =
        images::size_with_shorter_side(info.size.width, info.size.height, size);
    picture.width = int(width);
    picture.height = int(height);
    view = images::stretched_view(info.size, {picture.width, picture.height});
  }
  picture.pixels.resize(size_t(picture.width) * size_t(picture.height) * 3);
  const images::RenderOptions render{.filter = options_.render.filter,
                                     .layout = images::Layout::kInterleaved,
                                     .type = images::PixelType::kUint8,
                                     .dct_scaling = options_.render.dct_scaling};
  YARD_TRY(pictures.render(view, render, std::as_writable_bytes(std::span(picture.pixels))));
  return picture;
}

}  // namespace yard::loader
