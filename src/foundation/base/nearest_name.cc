#include "base/nearest_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace yard {
namespace {

// A typed-in name longer than this is no misspelling, and the distance costs its square.
constexpr size_t kNameSizeMax = 256;

// Levenshtein's distance, two adjacent letters swapped counting as one (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_previous(b.size() + 1);
  std::vector<size_t> previous(b.size() + 1);
  std::vector<size_t> current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = std::min(current[j], before_previous[j - 2] + 1);
    }
    std::swap(before_previous, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& names) {
  if (name.size() > kNameSizeMax) return {};
  std::string_view nearest;
  size_t distance_min = name.size() / 3 + 2;  // one above what is still near
  for (const auto candidate : names) {
    if (candidate.size() > kNameSizeMax) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance >= distance_min) continue;
    distance_min = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string suggestion(std::string_view name, const std::vector<std::string_view>& names) {
  if (const auto nearest = nearest_name(name, names); !nearest.empty())
    return fmt::format(", did you mean '{}'?", nearest);
  return fmt::format(" (known: {})", fmt::join(names, ", "));
}

}  // namespace yard
