#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace yard {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& names) {
  std::string_view best;
  size_t best_distance = name.size() / 3 + 2;
  for (const std::string_view candidate : names) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggestion(std::string_view name, const std::vector<std::string_view>& names) {
  if (const std::string_view near = nearest_name(name, names); !near.empty()) {
    return ", did you mean '" + std::string(near) + "'?";
  }
  std::string known;
  for (const std::string_view n : names) {
    known += known.empty() ? "" : ", ";
    known += n;
  }
  return " (known: " + known + ")";
}

}  // namespace yard
