#include <algorithm>
#include <cmath>

#include "loader/sample_decoder_internal.h"
#include "telemetry/metric_names.h"

namespace yard::loader {
namespace {

// The two pointers and heads of an entry, so that many tiny pictures are not free.
constexpr uint64_t kEntryOverheadBytes = 128;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// images::crop_into() of a picture that has its final size already: no filter, only levels.
void cut_into(const images::Picture& picture, const Draw& draw, size_t size, std::span<float> out) {
  const auto begin_of = [&](int length, double position) {
    return size_t(std::nearbyint(position * (double(length) - double(size))));
  };
  const size_t left = begin_of(picture.width, draw.x);
  const size_t top = begin_of(picture.height, draw.y);
  for (size_t y = 0; y < size; ++y) {
    const uint8_t* row = picture.pixels.data() + ((top + y) * size_t(picture.width) + left) * 3;
    for (size_t c = 0; c < 3; ++c) {
      float* target = out.data() + (c * size + y) * size;
      for (size_t x = 0; x < size; ++x) target[x] = float(row[x * 3 + c]) / 127.5F - 1.0F;
      if (draw.flip) std::reverse(target, target + size);
    }
  }
}

}  // namespace

PictureCache::PictureCache(uint64_t sample_count, uint64_t bytes_max)
    : bytes_max_(bytes_max), entries_(bytes_max > 0 ? sample_count : 0) {}

std::shared_ptr<const PictureCache::Entry> PictureCache::find(uint64_t sample_id) const {
  if (!is_enabled()) return nullptr;
  std::lock_guard lock(mutex_);
  return entries_[sample_id];
}

void PictureCache::add(uint64_t sample_id, std::shared_ptr<const Entry> entry) {
  const uint64_t bytes = entry->picture.pixels.size() + entry->caption.size() + kEntryOverheadBytes;
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
                             CounterRegistry& counters)
    : set_(set),
      options_(options),
      cache_(set.sample_count(), options.cache_bytes_max),
      read_bytes_(counters.counter(metric::kLoaderReadBytes)),
      decode_seconds_(counters.counter(metric::kLoaderDecodeSeconds)) {}

Status SampleDecoder::load(uint64_t sample_id, const Draw& draw, Scratch& scratch,
                           std::span<float> pixels, std::string& caption) {
  if (const auto entry = cache_.find(sample_id)) {
    cut_into(entry->picture, draw, size_t(options_.image_size), pixels);
    caption = entry->caption;
    return Ok{};
  }
  YARD_ASSIGN(const images::Picture picture, read(sample_id, scratch, caption));
  if (!cache_.is_enabled()) {
    ScopedTimer timer(decode_seconds_);
    images::crop_into(picture, {options_.image_size, draw.x, draw.y, draw.flip}, pixels);
    return Ok{};
  }
  auto entry = std::make_shared<PictureCache::Entry>();
  entry->picture = shrink(picture, scratch);
  entry->caption = caption;
  cut_into(entry->picture, draw, size_t(options_.image_size), pixels);
  cache_.add(sample_id, std::move(entry));
  return Ok{};
}

Result<images::Picture> SampleDecoder::read(uint64_t sample_id, Scratch& scratch,
                                            std::string& caption) {
  const DataSet::Place place = set_.place(sample_id);
  YARD_TRY(set_.check(place));
  const bool image_first = place.image->offset < place.caption->offset;
  const shards::ShardIndex::Member wanted[2] = {image_first ? *place.image : *place.caption,
                                                image_first ? *place.caption : *place.image};
  YARD_ASSIGN(const auto contents, place.shard->read(place.sample, wanted, scratch.encoded));
  const auto text = contents[image_first ? 1 : 0];
  read_bytes_.add(double(contents[0].size() + contents[1].size()));
  caption = trimmed({reinterpret_cast<const char*>(text.data()), text.size()});
  ScopedTimer timer(decode_seconds_);
  auto picture =
      images::decode(contents[image_first ? 0 : 1], {.shorter_side_min = options_.image_size});
  if (!picture)
    return std::move(picture).error().while_(
        place.shard->where(place.sample) + ": member '" +
        place.shard->index().member_name(place.sample, *place.image) + "'");
  return picture;
}

// In 8 bits, with no more than a crop can need.
images::Picture SampleDecoder::shrink(const images::Picture& picture, Scratch& scratch) const {
  ScopedTimer timer(decode_seconds_);
  const int size = options_.image_size;
  if (options_.random_crop) {
    const auto [width, height] =
        images::size_with_shorter_side(picture.width, picture.height, size);
    return images::resize(picture, int(width), int(height));
  }
  scratch.square.resize(3 * size_t(size) * size_t(size));
  images::crop_into(picture, {.size = size}, scratch.square);
  return images::from_floats(scratch.square, size, size);
}

bool SampleDecoder::is_bad_sample(const Error& error, uint64_t sample_id) const {
  const bool is_data = error.code == Code::kCorrupt || error.code == Code::kInvalidArgument ||
                       error.code == Code::kExhausted;
  // A shard that was replaced under us gives kCorrupt too; skipping all of it would hide that.
  return is_data && set_.is_unchanged(set_.place(sample_id));
}

}  // namespace yard::loader
