#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include "base/log.h"
#include "loader/loader_options_internal.h"
#include "loader/metadata_filter.h"
#include "loader/sample_reader_internal.h"
#include "storage/transfer_pool.h"

namespace yard::loader {
namespace {

constexpr int kImageSideMax = 8192;

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

Status check_images(const LoaderOptions& o) {
  if (o.image_size < 1 || o.image_size > kImageSideMax)
    return invalid(fmt::format("image size {} is not in 1..{}", o.image_size, kImageSideMax));
  for (const images::Size& size : o.aspect_buckets)
    if (std::min(size.width, size.height) < 1 || std::max(size.width, size.height) > kImageSideMax)
      return invalid(fmt::format("the aspect bucket {} x {} has a side that is not in 1..{}",
                                 size.width, size.height, kImageSideMax));
  if (o.cache_bytes_max > 0 && (!o.aspect_buckets.empty() || o.random_resized_crop))
    return invalid("pictures cannot be cached with aspect buckets or random resized crops");
  if (o.raw && (!o.aspect_buckets.empty() || o.cache_bytes_max > 0))
    return invalid("raw samples have no aspect buckets and no cache of pictures");
  if (o.random_crop && o.random_resized_crop)
    return invalid("choose random_crop or random_resized_crop");
  for (const float std : o.render.std)
    if (!(std > 0)) return invalid(fmt::format("pixels cannot be divided by a std of {}", std));
  return Ok{};
}

// The bucket of every sample, by its metadata and the size in its picture's header.
class BucketFinder {
 public:
  BucketFinder(DataSet& set, const LoaderOptions& options, std::optional<MetadataFilter> filter,
               Quarantine& quarantine, CounterRegistry& counters)
      : options_(options),
        filter_(std::move(filter)),
        quarantine_(quarantine),
        reader_(set, options, StopToken(), counters, meters_),
        buckets_(set.sample_count()) {}

  // Many samples at once.
  Result<std::vector<uint32_t>> find() {
    constexpr uint64_t kSamplesPerTask = 64;
    const bool is_remote = reader_.set().is_remote();
    {
      storage::TransferPool pool({.transfer_count_first = is_remote ? 64 : options_.thread_count,
                                  .transfer_count_max = is_remote ? 256 : options_.thread_count});
      for (uint64_t begin = 0; begin < buckets_.size(); begin += kSamplesPerTask)
        pool.push(0, [this, begin]() -> Result<uint64_t> {
          const uint64_t end = std::min<uint64_t>(buckets_.size(), begin + kSamplesPerTask);
          for (uint64_t id = begin; id < end; ++id) note(id, bucket_of(id));
          return uint64_t{0};
        });
    }
    if (failed_) return std::move(failed_->second);
    return std::move(buckets_);
  }

 private:
  Result<uint32_t> bucket_of(uint64_t id) {
    if (filter_) {
      YARD_ASSIGN(const std::string metadata, reader_.read_member(id, options_.metadata_member));
      auto matched = filter_->matches(metadata);
      if (!matched) return std::move(matched).error().while_(fmt::format("sample {}", id));
      if (!*matched) return shards::SamplePlanOptions::kLeftOut;
    }
    if (options_.aspect_buckets.empty()) return uint32_t{0};
    YARD_ASSIGN(const images::Size size, reader_.read_picture_size(id));
    return uint32_t(nearest_bucket(size, options_.aspect_buckets));
  }

  void note(uint64_t id, const Result<uint32_t>& bucket) {
    buckets_[id] = bucket ? *bucket : shards::SamplePlanOptions::kLeftOut;
    if (bucket) return;
    if (options_.bad_samples == BadSamplePolicy::kSkip && reader_.is_bad_sample(bucket.error(), id))
      return quarantine_.add(id, bucket.error());
    const std::lock_guard lock(mutex_);
    if (!failed_ || id < failed_->first) failed_.emplace(id, bucket.error());
  }

  const LoaderOptions& options_;
  const std::optional<MetadataFilter> filter_;
  Quarantine& quarantine_;
  LoaderMeters meters_;
  SampleReader reader_;
  std::vector<uint32_t> buckets_;
  std::mutex mutex_;
  std::optional<std::pair<uint64_t, Error>> failed_;  // the first in order
};

}  // namespace

Status check_options(const LoaderOptions& o) {
  if (o.shards.empty() == o.sources.empty())
    return invalid(o.shards.empty() ? "no shards were given" : "shards and sources were given");
  if (o.world_size < 1 || o.rank < 0 || o.rank >= o.world_size)
    return invalid(fmt::format("rank {} is not in a world of {}", o.rank, o.world_size));
  if (o.turn_count < 1 || o.turn < 0 || o.turn >= o.turn_count)
    return invalid(fmt::format("there is no turn {} of {}", o.turn, o.turn_count));
  if (o.global_batch_size < 1 || o.global_batch_size % o.world_size != 0)
    return invalid(fmt::format("a global batch of {} samples cannot be shared evenly by {} ranks",
                               o.global_batch_size, o.world_size));
  if (o.thread_count < 1 || o.thread_count > 256)
    return invalid(fmt::format("{} loader threads are not in 1..256", o.thread_count));
  if (o.prefetch_batch_count < 1 || o.prefetch_batch_count > 1024)
    return invalid(fmt::format("{} prefetched batches are not in 1..1024", o.prefetch_batch_count));
  if (o.held_out_count < 0)
    return invalid(fmt::format("{} samples cannot be held out", o.held_out_count));
  return check_images(o);
}

size_t nearest_bucket(images::Size picture, const std::vector<images::Size>& buckets) {
  const auto aspect = [](images::Size size) {
    return std::log(double(size.width) / double(size.height));
  };
  const auto distance = [&](images::Size size) { return std::abs(aspect(size) - aspect(picture)); };
  return size_t(std::ranges::min_element(buckets, {}, distance) - buckets.begin());
}

Result<shards::SamplePlanOptions> plan_options_of(DataSet& set, const LoaderOptions& options,
                                                  Quarantine& quarantine,
                                                  CounterRegistry& counters) {
  shards::SamplePlanOptions plan;
  plan.seed = options.seed;
  plan.shuffle = options.shuffle;
  plan.sample_count = set.sample_count();
  plan.held_out_count = uint64_t(options.held_out_count);
  plan.global_batch_size = uint64_t(options.global_batch_size);
  if (options.mode == ShardMode::kIndependent)
    plan.global_batch_size /= uint64_t(options.world_size);
  plan.ends = options.ends;
  plan.sources = set.sources();
  if (options.aspect_buckets.empty() && options.filter.empty()) return plan;
  std::optional<MetadataFilter> filter;
  if (!options.filter.empty()) {
    YARD_ASSIGN(filter, MetadataFilter::parse(options.filter));
  }
  log_info("reading {} of {} samples", filter ? "the metadata" : "the sizes", set.sample_count());
  BucketFinder finder(set, options, std::move(filter), quarantine, counters);
  YARD_ASSIGN(plan.buckets, finder.find());
  return plan;
}

std::string LoaderReport::to_string() const {
  const double thread_seconds = std::max(seconds * thread_count, 1e-9);
  const auto percent = [&](double part) { return part / thread_seconds * 100; };
  const double wait_percent = consumer_wait_seconds / std::max(seconds, 1e-9) * 100;
  const char* bound = "the consumer";
  if (wait_percent >= 2) bound = read_wait_seconds > decode_seconds ? "the store" : "decoding";
  return fmt::format(
      "{} bounds: {:.0f} samples/s, {:.1f} MB/s; threads decode {:.0f} %, wait for the store "
      "{:.0f} "
      "%, are idle {:.0f} %; the consumer waits {:.1f} %",
      bound, double(sample_count) / std::max(seconds, 1e-9),
      double(read_bytes) / 1e6 / std::max(seconds, 1e-9), percent(decode_seconds),
      percent(read_wait_seconds), percent(idle_seconds), wait_percent);
}

}  // namespace yard::loader
