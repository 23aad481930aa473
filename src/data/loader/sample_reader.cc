#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "images/picture_size.h"
#include "loader/sample_reader_internal.h"
#include "storage/request_deadline.h"
#include "telemetry/metric_names.h"

namespace yard::loader {
namespace {

using shards::ShardIndex;

// A JPEG's sizes may stand behind a colour profile and a thumbnail.
constexpr uint64_t kHeaderBytes = 64 << 10;

}  // namespace

SampleReader::SampleReader(DataSet& set, const LoaderOptions& options, StopToken stop,
                           CounterRegistry& counters, LoaderMeters& meters)
    : set_(set),
      options_(options),
      read_bytes_(counters.counter(metric::kLoaderReadBytes)),
      meters_(meters),
      wait_(options.store_patience, counters.counter(metric::kLoaderStoreRetries), std::move(stop),
            Clock::real()) {}

template <typename Read>
auto SampleReader::patiently(Asks asks, const Read& read) -> decltype(read()) {
  const auto begin = Clock::real().now();
  const storage::RequestDeadline deadline(wait_.end(begin));
  for (int attempt = 0;; ++attempt) {
    auto result = read();
    // An index that is in memory was no question to the store.
    if (result && (asks == Asks::kStore || attempt > 0)) wait_.note_answer();
    // What is too large stays so.
    if (result || result.error().code == Code::kExhausted ||
        !wait_.wait(result.error(), begin, attempt))
      return result;
  }
}

Result<SampleRange> SampleReader::find_once(uint64_t sample_id) {
  SampleRange range;
  YARD_ASSIGN(range.place, set_.place(sample_id));
  const DataSet::Place& place = range.place;
  YARD_TRY(set_.check(place));
  if (options_.raw) {
    const auto all = place.shard->index().members(place.sample);
    range.wanted.assign(all.begin(), all.end());
  } else {
    range.wanted.push_back(*place.image);
    if (place.caption != nullptr) range.wanted.push_back(*place.caption);
    std::ranges::sort(range.wanted, {}, &ShardIndex::Member::offset);
  }
  if (range.end() - range.begin() <= shards::ShardReader::kReadBytesMax) return range;
  return Error{
      Code::kExhausted,
      fmt::format("{}: {} bytes, more than the limit of {}", place.shard->where(place.sample),
                  range.end() - range.begin(), shards::ShardReader::kReadBytesMax)};
}

Result<SampleRange> SampleReader::find(uint64_t sample_id) {
  return patiently(Asks::kIfUnknown, [&] { return find_once(sample_id); });
}

Status SampleReader::read_range(const SampleRange& of_shard, uint64_t begin,
                                std::span<std::byte> out) {
  return patiently(Asks::kStore, [&] { return of_shard.place.shard->read_range(begin, out); });
}

Status SampleReader::take(const SampleRange& range, std::span<const std::byte> bytes,
                          EncodedSample& out) {
  out.place = range.place;
  const shards::ShardReader& shard = *out.place.shard;
  YARD_ASSIGN(const auto contents, shard.slice(out.place.sample, range.wanted, bytes));
  out.caption = {};
  out.members.clear();
  double size_bytes = 0;
  for (size_t i = 0; i < range.wanted.size(); ++i) {
    size_bytes += double(contents[i].size());
    if (options_.raw)
      out.members.push_back({std::string(shard.index().extension(range.wanted[i])), contents[i]});
    else if (range.wanted[i] == *out.place.image)
      out.image = contents[i];
    else
      out.caption = contents[i];
  }
  read_bytes_.add(size_bytes);
  meters_.read_bytes.add(size_bytes);
  return Ok{};
}

Status SampleReader::read(uint64_t sample_id, EncodedSample& out) {
  YARD_ASSIGN(const SampleRange range, find(sample_id));
  const uint64_t size_bytes = range.end() - range.begin();
  out.shared_bytes.reset();
  std::span<std::byte> bytes;
  if (options_.raw) {
    auto memory = memory_.take(size_bytes);
    bytes = std::span(memory.get(), size_bytes);
    out.own_bytes = std::move(memory);
  } else {
    if (out.bytes.size() < size_bytes) out.bytes.resize(size_bytes);
    bytes = std::span(out.bytes).first(size_bytes);
  }
  YARD_TRY(read_range(range, range.begin(), bytes));
  return take(range, bytes, out);
}

RawSample SampleReader::raw_sample(EncodedSample&& sample) {
  RawSample raw{.bytes = std::move(sample.own_bytes), .members = std::move(sample.members)};
  if (sample.shared_bytes == nullptr) return raw;
  const std::byte* begin = raw.members.front().content.data();
  const std::span<const std::byte> last = raw.members.back().content;
  const std::span<const std::byte> all(begin, last.data() + last.size());
  auto memory = memory_.take(all.size());
  std::ranges::copy(all, memory.get());
  for (RawMember& member : raw.members)
    member.content =
        std::span(memory.get() + (member.content.data() - begin), member.content.size());
  raw.bytes = std::move(memory);
  sample.shared_bytes.reset();
  return raw;
}

Result<images::Size> SampleReader::read_picture_size(uint64_t sample_id) {
  YARD_ASSIGN(const auto place, patiently(Asks::kIfUnknown, [&] { return set_.place(sample_id); }));
  YARD_TRY(set_.check(place));
  if (const auto known = place.shard->index().picture_size(place.sample, *place.image))
    return *known;
  std::vector<std::byte> bytes;
  const uint64_t front_bytes = std::min(kHeaderBytes, place.image->size_bytes);
  YARD_TRY(patiently(Asks::kStore,
                     [&] { return place.shard->read_front(*place.image, front_bytes, bytes); }));
  images::PictureSizeFinder finder;
  finder.take(std::span(bytes).first(front_bytes));
  const bool is_certain = finder.is_settled() || front_bytes == place.image->size_bytes;
  if (is_certain && finder.size()) return *finder.size();
  return read_picture_size_of_whole(place, bytes);
}

// The orientation of a PNG or WebP may stand behind its pixels; and what no finder knows, the
// reader has a word for.
Result<images::Size> SampleReader::read_picture_size_of_whole(const DataSet::Place& place,
                                                              std::vector<std::byte>& bytes) {
  const uint64_t size_bytes = place.image->size_bytes;
  YARD_TRY(patiently(Asks::kStore,
                     [&] { return place.shard->read_front(*place.image, size_bytes, bytes); }));
  images::PictureReader reader;
  auto info = reader.open(std::span(bytes).first(size_bytes));
  if (!info) return std::move(info).error().while_(place.shard->where(place.sample));
  return info->size;
}

Result<std::string> SampleReader::read_member(uint64_t sample_id, std::string_view extension) {
  YARD_ASSIGN(const auto place, patiently(Asks::kIfUnknown, [&] { return set_.place(sample_id); }));
  const shards::ShardReader& shard = *place.shard;
  const ShardIndex::Member* member = shard.index().find(place.sample, extension);
  if (member == nullptr)
    return Error{Code::kCorrupt,
                 fmt::format("{}: no member '{}'", shard.where(place.sample), extension)};
  std::vector<std::byte> buffer;
  YARD_ASSIGN(const auto contents, patiently(Asks::kStore, [&] {
                return shard.read(place.sample, std::span(member, 1), buffer);
              }));
  return std::string(reinterpret_cast<const char*>(contents[0].data()), contents[0].size());
}

bool SampleReader::is_bad_sample(const Error& error, uint64_t sample_id) {
  const bool is_data = error.code == Code::kCorrupt || error.code == Code::kInvalidArgument ||
                       error.code == Code::kExhausted;
  // A shard that was replaced under us gives kCorrupt too; skipping all of it would hide that.
  return is_data && set_.is_unchanged(sample_id);
}

}  // namespace yard::loader
