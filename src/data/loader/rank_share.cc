#include <algorithm>
#include <numeric>
#include <tuple>

#include "loader/rank_share_internal.h"

namespace yard::loader {
namespace {

// Ordering costs every rank the whole batch: some 0.4 us a sample.
constexpr uint64_t kOrderedBatchMax = 8192;
constexpr size_t kKnownMax = 16;

bool is_alone(const LoaderOptions& options) {
  return options.mode == ShardMode::kIndependent;
}

// Of a mix each rank would get one source, of buckets and filters there are no whole windows, and
// raw samples are a stream in which whoever consumes it makes batches of his own.
bool is_plain(const LoaderOptions& options) {
  return options.sources.size() <= 1 && options.aspect_buckets.empty() && options.filter.empty();
}

bool is_ordered(const LoaderOptions& options) {
  return !is_alone(options) && !options.raw && is_plain(options) &&
         uint64_t(options.global_batch_size) <= kOrderedBatchMax;
}

bool has_windows(const LoaderOptions& options) {
  const bool has_neighbours = is_alone(options) || options.world_size == 1 || is_ordered(options);
  return has_neighbours && is_plain(options) && options.turn_count == 1;
}

}  // namespace

RankShare::RankShare(const shards::SamplePlan& plan, const LoaderOptions& options)
    : plan_(plan),
      size_(uint64_t(options.global_batch_size) / uint64_t(options.world_size)),
      batch_size_(is_alone(options) ? size_ : uint64_t(options.global_batch_size)),
      first_(is_alone(options) ? 0 : uint64_t(options.rank) * size_),
      is_ordered_(is_ordered(options)),
      has_windows_(has_windows(options)) {}

RankShare::Places RankShare::places(const LoaderState& position) const {
  {
    const std::lock_guard lock(mutex_);
    for (const Known& known : known_)
      if (known.position.epoch == position.epoch && known.position.batch == position.batch)
        return known.places;
  }
  auto found = std::make_shared<const std::vector<uint64_t>>(find_places(position));
  const std::lock_guard lock(mutex_);
  known_.push_front({position, found});
  if (known_.size() > kKnownMax) known_.pop_back();
  return found;
}

// What fills up an epoch's end comes last, as it is drawn.
std::vector<uint64_t> RankShare::find_places(const LoaderState& position) const {
  std::vector<uint64_t> places(is_ordered_ ? batch_size_ : size_);
  std::iota(places.begin(), places.end(), is_ordered_ ? 0 : first_);
  if (!is_ordered_) return places;
  std::vector<std::tuple<bool, uint64_t, uint64_t>> order;
  order.reserve(places.size());
  for (const uint64_t place : places) {
    const auto at = plan_.at(position.epoch, position.batch, place);
    order.emplace_back(at.is_padding, at.sample, place);
  }
  std::ranges::sort(order);
  places.clear();
  for (uint64_t i = 0; i < size_; ++i) places.push_back(std::get<2>(order[first_ + i]));
  return places;
}

std::optional<uint64_t> RankShare::window_end(uint64_t number) const {
  if (!has_windows_) return std::nullopt;
  const uint64_t epoch_end = plan_.batches_per_epoch() * size_;
  const uint64_t rank_count = batch_size_ / size_;
  const uint64_t end = plan_.window_end(number * rank_count) / rank_count;
  return std::max(std::min(end, epoch_end), number + 1);
}

}  // namespace yard::loader
