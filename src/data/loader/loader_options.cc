#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "loader/loader_options_internal.h"
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

// The bucket of every sample, by the sizes in the pictures' headers.
Result<std::vector<uint32_t>> buckets_of(DataSet& set, const LoaderOptions& options,
                                         Quarantine& quarantine, CounterRegistry& counters) {
  log_info("reading the sizes of {} pictures", set.sample_count());
  LoaderMeters meters;
  SampleReader reader(set, options, StopToken(), counters, meters);
  std::vector<uint32_t> buckets(set.sample_count());
  std::mutex mutex;
  std::optional<std::pair<uint64_t, Error>> failed;  // the first in order
  constexpr uint64_t kSamplesPerTask = 64;
  const auto read = [&](uint64_t id) {
    auto size = reader.read_picture_size(id);
    if (size) {
      buckets[id] = uint32_t(nearest_bucket(*size, options.aspect_buckets));
      return;
    }
    buckets[id] = shards::SamplePlanOptions::kLeftOut;
    const bool may_skip =
        options.bad_samples == BadSamplePolicy::kSkip && reader.is_bad_sample(size.error(), id);
    if (may_skip) return quarantine.add(id, size.error());
    const std::lock_guard lock(mutex);
    if (!failed || id < failed->first) failed.emplace(id, size.error());
  };
  {
    storage::TransferPool pool(
        {.transfer_count_first = set.is_remote() ? 64 : options.thread_count,
         .transfer_count_max = set.is_remote() ? 256 : options.thread_count});
    for (uint64_t begin = 0; begin < buckets.size(); begin += kSamplesPerTask)
      pool.push(0, [&, begin]() -> Result<uint64_t> {
        const uint64_t end = std::min<uint64_t>(buckets.size(), begin + kSamplesPerTask);
        for (uint64_t id = begin; id < end; ++id) read(id);
        return uint64_t{0};
      });
  }
  if (failed) return std::move(failed->second);
  return buckets;
}

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
  if (!options.aspect_buckets.empty()) {
    YARD_ASSIGN(plan.buckets, buckets_of(set, options, quarantine, counters));
  }
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
