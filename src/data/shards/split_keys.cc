#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "shards/rewrite.h"
#include "shards/stable_hash_internal.h"

namespace yard::shards {
namespace {

uint64_t draw_of(std::string_view key, uint64_t seed) {
  // FNV alone is poor in its upper bits.
  return random_u64(seed, 0, StableHash().add(key).value());
}

Status check_parts(std::span<const SplitPart> parts) {
  const auto bad = [](const std::string& why) { return Error{Code::kInvalidArgument, why}; };
  size_t weight_count = 0, count_count = 0;
  for (const SplitPart& part : parts) {
    if (part.name.empty()) return bad("a part needs a name");
    if (std::ranges::count(parts, part.name, &SplitPart::name) > 1)
      return bad(fmt::format("two parts have the name '{}'", part.name));
    if (part.weight && !(*part.weight > 0 && std::isfinite(*part.weight)))
      return bad(fmt::format("the weight of part '{}' must be more than 0", part.name));
    weight_count += part.weight ? 1 : 0;
    count_count += part.count ? 1 : 0;
  }
  const size_t rest_count = parts.size() - weight_count - count_count;
  if (weight_count > 0 && (count_count > 0 || rest_count > 0))
    return bad("parts have weights, or counts and a rest, not both");
  if (weight_count == 0 && rest_count != 1)
    return bad("one part must take the rest of the samples");
  return Ok{};
}

std::vector<uint32_t> split_by_weights(std::span<const std::string_view> keys,
                                       std::span<const SplitPart> parts, uint64_t seed) {
  double sum = 0;
  for (const SplitPart& part : parts) sum += *part.weight;
  std::vector<double> ends;
  double end = 0;
  for (const SplitPart& part : parts) ends.push_back(end += *part.weight / sum);
  std::vector<uint32_t> chosen;
  for (const std::string_view key : keys) {
    const double at = static_cast<double>(draw_of(key, seed) >> 11) * 0x1p-53;
    const auto part = std::ranges::upper_bound(ends, at) - ends.begin();
    chosen.push_back(uint32_t(std::min<size_t>(size_t(part), parts.size() - 1)));
  }
  return chosen;
}

Result<std::vector<uint32_t>> split_by_counts(std::span<const std::string_view> keys,
                                              std::span<const SplitPart> parts, uint64_t seed) {
  std::vector<std::pair<uint64_t, size_t>> order;  // draw, place
  for (size_t i = 0; i < keys.size(); ++i) order.emplace_back(draw_of(keys[i], seed), i);
  std::ranges::sort(order, [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : keys[a.second] < keys[b.second];
  });
  const auto rest = std::ranges::find_if(parts, [](const SplitPart& p) { return !p.count; });
  std::vector<uint32_t> chosen(keys.size(), uint32_t(rest - parts.begin()));
  size_t next = 0;
  for (uint32_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].count) continue;
    if (*parts[i].count > keys.size() - next)
      return Error{Code::kInvalidArgument,
                   fmt::format("part '{}' is to have {} samples, but only {} of {} are left",
                               parts[i].name, *parts[i].count, keys.size() - next, keys.size())};
    const size_t end = next + *parts[i].count;
    for (; next < end; ++next) chosen[order[next].second] = i;
    // A key that is there twice must not lie on both sides.
    for (; next > 0 && next < order.size() &&
           keys[order[next].second] == keys[order[next - 1].second];
         ++next)
      chosen[order[next].second] = chosen[order[next - 1].second];
  }
  return chosen;
}

}  // namespace

Result<std::vector<uint32_t>> split_keys(std::span<const std::string_view> keys,
                                         std::span<const SplitPart> parts, uint64_t seed) {
  YARD_TRY(check_parts(parts));
  if (parts.front().weight) return split_by_weights(keys, parts, seed);
  return split_by_counts(keys, parts, seed);
}

}  // namespace yard::shards
