#include "shards/sample_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/random.h"

namespace yard::shards {
namespace {

// Streams of random numbers, one per purpose. Their lower half is the epoch.
constexpr uint64_t kBatchStream = uint64_t{0x73687534} << 32;
constexpr uint64_t kMixStream = uint64_t{0x73687535} << 32;
constexpr uint64_t kSourceStream = uint64_t{0x73687536} << 32;
constexpr uint64_t kBucketStream = uint64_t{0x73687537} << 32;
constexpr uint64_t kHeldOutSeed = 0x68656c64'2d6f7574;
constexpr uint64_t kMixPeriod = 4096;

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

Status check_options(const SamplePlanOptions& o) {
  if (o.sample_count == 0) return invalid("the data set has no samples");
  if (o.global_batch_size == 0) return invalid("the batch size must be at least 1");
  if (o.block_size == 0 || o.window_size == 0 || o.window_size % o.block_size != 0)
    return invalid(
        fmt::format("window_size {} is no multiple of block_size {}", o.window_size, o.block_size));
  if (!o.buckets.empty() && o.buckets.size() != o.sample_count)
    return invalid(
        fmt::format("{} buckets are named for {} samples", o.buckets.size(), o.sample_count));
  uint64_t count = 0;
  for (size_t i = 0; i < o.sources.size(); ++i) {
    if (o.sources[i].sample_count == 0) return invalid(fmt::format("source {} has no samples", i));
    if (!(o.sources[i].weight > 0) || !std::isfinite(o.sources[i].weight))
      return invalid(fmt::format("source {} has a weight of {}", i, o.sources[i].weight));
    count += o.sources[i].sample_count;
  }
  if (!o.sources.empty() && count != o.sample_count)
    return invalid(
        fmt::format("the sources have {} samples, the data set {}", count, o.sample_count));
  return Ok{};
}

}  // namespace

Result<SamplePlan> SamplePlan::create(const SamplePlanOptions& options) {
  YARD_TRY(check_options(options));
  SamplePlan plan(options);
  YARD_TRY(plan.set_usable());
  YARD_TRY(plan.set_groups());
  YARD_TRY(plan.set_shares());
  return plan;
}

SamplePlan::SamplePlan(const SamplePlanOptions& options) : options_(options) {}

// Which samples there are, and which of them are held out.
Status SamplePlan::set_usable() {
  const auto& buckets = options_.buckets;
  if (std::ranges::find(buckets, SamplePlanOptions::kLeftOut) != buckets.end()) {
    for (uint64_t sample = 0; sample < buckets.size(); ++sample)
      if (buckets[sample] != SamplePlanOptions::kLeftOut) usable_.push_back(sample);
    if (usable_.empty()) return invalid("every sample of the data set is left out");
  }
  usable_count_ = usable_.empty() ? options_.sample_count : usable_.size();
  if (options_.held_out_count >= usable_count_)
    return invalid(fmt::format("{} samples are to be held out of a data set of {}",
                               options_.held_out_count, usable_count_));
  training_count_ = usable_count_ - options_.held_out_count;
  const RandomPermutation order(usable_count_, kHeldOutSeed, 0);
  for (uint64_t i = 0; i < options_.held_out_count; ++i)
    held_out_before_.push_back(order.permute(i));
  std::ranges::sort(held_out_before_);
  for (uint64_t i = 0; i < held_out_before_.size(); ++i) held_out_before_[i] -= i;
  return Ok{};
}

uint64_t SamplePlan::held_out(uint64_t i) const {
  YARD_CHECK(i < options_.held_out_count);
  const uint64_t number = RandomPermutation(usable_count_, kHeldOutSeed, 0).permute(i);
  return usable_.empty() ? number : usable_[number];
}

uint64_t SamplePlan::sample_of(uint64_t training_number) const {
  const auto skipped = std::ranges::upper_bound(held_out_before_, training_number);
  const uint64_t number = training_number + uint64_t(skipped - held_out_before_.begin());
  return usable_.empty() ? number : usable_[number];
}

uint64_t SamplePlan::batch_count_of(uint64_t sample_count) const {
  const uint64_t whole = sample_count / options_.global_batch_size;
  const bool has_rest = sample_count % options_.global_batch_size != 0;
  return whole + (has_rest && options_.ends != EndPolicy::kDrop ? 1 : 0);
}

SamplePlan::Group SamplePlan::group_of(const Source& source, uint32_t bucket,
                                       uint64_t count) const {
  Group group;
  group.bucket = bucket;
  group.batch_count = batch_count_of(count);
  group.shuffle = {.seed = source.seed,
                   .count = count,
                   .block_size = options_.block_size,
                   .window_size = options_.window_size};
  if (!options_.buckets.empty())
    group.shuffle.seed = random_u64(source.seed, kBucketStream, bucket);
  return group;
}

Status SamplePlan::set_groups() {
  auto sources = options_.sources;
  if (sources.empty()) sources.push_back({options_.sample_count, 1});
  uint64_t end_sample = 0, number = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    end_sample += sources[i].sample_count;
    Source source;
    source.seed = sources.size() == 1 ? options_.seed : random_u64(options_.seed, kSourceStream, i);
    const uint64_t first = number;
    std::map<uint32_t, std::vector<uint64_t>> by_bucket;
    if (options_.buckets.empty()) {
      // The training samples below end_sample: their numbers ascend.
      uint64_t low = number, high = training_count_;
      while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (sample_of(middle) < end_sample)
          low = middle + 1;
        else
          high = middle;
      }
      number = low;
    } else {
      for (; number < training_count_ && sample_of(number) < end_sample; ++number)
        by_bucket[options_.buckets[sample_of(number)]].push_back(number);
    }
    source.sample_count = number - first;
    if (source.sample_count == 0)
      return invalid(fmt::format("source {} has no training samples left", i));
    if (by_bucket.empty()) {
      source.groups.push_back(group_of(source, 0, source.sample_count));
      source.groups.back().first = first;
    }
    for (auto& [bucket, numbers] : by_bucket) {
      source.groups.push_back(group_of(source, bucket, numbers.size()));
      source.groups.back().numbers = std::move(numbers);
    }
    uint64_t batch_end = 0;
    for (const Group& group : source.groups)
      source.batch_ends.push_back(batch_end += group.batch_count);
    sources_.push_back(std::move(source));
  }
  return Ok{};
}

// How many of kMixPeriod places each source has, and the length of an epoch.
Status SamplePlan::set_shares() {
  const uint64_t batch_size = options_.global_batch_size;
  const bool is_mix = sources_.size() > 1;
  for (size_t i = 0; i < sources_.size(); ++i)
    if (sources_[i].batch_ends.back() == 0 && (!is_mix || !options_.buckets.empty()))
      return invalid(
          options_.buckets.empty()
              ? fmt::format("a global batch of {} is larger than the data set of {} samples",
                            batch_size, training_count_)
              : fmt::format("no bucket of source {} has the {} samples of a global batch", i,
                            batch_size));
  batches_per_epoch_ = sources_[0].batch_ends.back();
  if (!is_mix) return Ok{};
  batches_per_epoch_ = std::max<uint64_t>(1, training_count_ / batch_size);

  double weight_sum = 0;
  for (const WeightedSource& source : options_.sources) weight_sum += source.weight;
  // By largest remainder, so that they add up.
  std::vector<std::pair<double, size_t>> remainders;
  uint64_t given = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const double exact = options_.sources[i].weight / weight_sum * double(kMixPeriod);
    sources_[i].share_size = uint64_t(exact);
    given += sources_[i].share_size;
    remainders.emplace_back(double(sources_[i].share_size) - exact, i);
  }
  std::ranges::sort(remainders);
  for (size_t i = 0; given < kMixPeriod; ++i, ++given) ++sources_[remainders[i].second].share_size;
  uint64_t begin = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].share_size == 0)
      return invalid(fmt::format("the weight of source {} is under 1/{} of all", i, kMixPeriod));
    sources_[i].share_begin = begin;
    begin += sources_[i].share_size;
  }
  return Ok{};
}

uint64_t SamplePlan::unused_count() const {
  uint64_t count = 0;
  for (const Source& source : sources_)
    for (const Group& group : source.groups)
      if (group.batch_count == 0 && !options_.buckets.empty()) count += group.shuffle.count;
  return count;
}

// Which source a sample (or batch) in sequence comes from, and which of its own it is.
std::pair<const SamplePlan::Source*, uint64_t> SamplePlan::mixed(uint64_t unit) const {
  const uint64_t period = unit / kMixPeriod;
  const uint64_t period_seed = random_u64(options_.seed, kMixStream, period);
  const uint64_t place = RandomPermutation(kMixPeriod, period_seed, 0).permute(unit % kMixPeriod);
  const auto after = std::ranges::upper_bound(sources_, place, {}, &Source::share_begin);
  const Source& source = *std::prev(after);
  return {&source, period * source.share_size + place - source.share_begin};
}

SamplePlan::Spot SamplePlan::locate_in(const Source& source, uint64_t epoch, uint64_t batch,
                                       uint64_t i) const {
  const uint64_t batch_size = options_.global_batch_size;
  if (options_.buckets.empty()) return {&source.groups[0], epoch, batch * batch_size + i};
  const RandomPermutation order(source.batch_ends.back(), source.seed, kBatchStream | epoch);
  const uint64_t shuffled = options_.shuffle ? order.permute(batch) : batch;
  const auto after = std::ranges::upper_bound(source.batch_ends, shuffled);
  const Group& group = source.groups[size_t(after - source.batch_ends.begin())];
  const uint64_t in_group = shuffled - (*after - group.batch_count);
  return {&group, epoch, in_group * batch_size + i};
}

SamplePlan::Spot SamplePlan::locate(uint64_t epoch, uint64_t batch, uint64_t i) const {
  YARD_CHECK(batch < batches_per_epoch_ && i < options_.global_batch_size);
  if (sources_.size() == 1) return locate_in(sources_[0], epoch, batch, i);
  const uint64_t batch_number = epoch * batches_per_epoch_ + batch;
  if (options_.buckets.empty()) {
    const auto [source, number] = mixed(batch_number * options_.global_batch_size + i);
    return {&source->groups[0], number / source->sample_count, number % source->sample_count};
  }
  const auto [source, number] = mixed(batch_number);
  const uint64_t batch_count = source->batch_ends.back();
  return locate_in(*source, number / batch_count, number % batch_count, i);
}

SamplePlan::Place SamplePlan::at(uint64_t epoch, uint64_t batch, uint64_t i,
                                 uint64_t attempt) const {
  const Spot spot = locate(epoch, batch, i);
  const Group& group = *spot.group;
  const uint64_t count = group.shuffle.count;
  const uint64_t position = (spot.position + attempt) % count;
  const uint64_t in_group = options_.shuffle ? group.shuffle.at(spot.epoch, position) : position;
  const uint64_t number = group.numbers.empty() ? group.first + in_group : group.numbers[in_group];
  return {sample_of(number), options_.ends == EndPolicy::kPad && spot.position >= count};
}

uint32_t SamplePlan::bucket(uint64_t epoch, uint64_t batch) const {
  return locate(epoch, batch, 0).group->bucket;
}

uint64_t SamplePlan::sample_at(uint64_t epoch, uint64_t position) const {
  YARD_CHECK(sources_.size() == 1 && options_.buckets.empty());
  return sample_of(options_.shuffle ? sources_[0].groups[0].shuffle.at(epoch, position) : position);
}

uint64_t SamplePlan::window_end(uint64_t position) const {
  YARD_CHECK(sources_.size() == 1 && options_.buckets.empty());
  return std::max(position + 1, sources_[0].groups[0].shuffle.window_end(position));
}

SamplePlan::Share SamplePlan::share(uint64_t batch, uint64_t rank, uint64_t world_size) const {
  YARD_CHECK(batch < batches_per_epoch());
  YARD_CHECK(rank < world_size && options_.global_batch_size % world_size == 0);
  const uint64_t count = options_.global_batch_size / world_size;
  return {batch * options_.global_batch_size + rank * count, count};
}

}  // namespace yard::shards
