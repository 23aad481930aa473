#include "parallel/flat_layout.h"

#include <algorithm>

#include "base/result.h"

namespace yard::parallel {
namespace {

int64_t rounded_up(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

std::string_view module_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

// Runs of parameters that stay together: index of the first of each.
std::vector<size_t> module_starts(const std::vector<std::string>& names) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < names.size(); ++i) {
    // Names without a dot are modules of their own.
    const bool same =
        i > 0 && !module_of(names[i]).empty() && module_of(names[i]) == module_of(names[i - 1]);
    if (!same) starts.push_back(i);
  }
  return starts;
}

// First parameter of each unit, ascending.
std::vector<size_t> unit_starts(const std::vector<std::string>& names,
                                const std::vector<int64_t>& counts, int64_t unit_elements) {
  std::vector<size_t> starts;
  const std::vector<size_t> modules = module_starts(names);
  size_t end = names.size();
  int64_t filled = 0;
  for (size_t m = modules.size(); m-- > 0;) {
    int64_t module_elements = 0;
    for (size_t i = modules[m]; i < end; ++i)
      module_elements += rounded_up(counts[i], kAlignmentElements);
    if (starts.empty() || filled + module_elements > unit_elements) {
      starts.push_back(modules[m]);
      filled = 0;
    }
    starts.back() = modules[m];
    filled += module_elements;
    end = modules[m];
  }
  std::reverse(starts.begin(), starts.end());
  return starts;
}

}  // namespace

int64_t FlatLayout::largest_unit_elements() const {
  int64_t largest = 0;
  for (size_t u = 0; u < units.size(); ++u) largest = std::max(largest, unit_elements(u));
  return largest;
}

int64_t FlatLayout::local_elements() const {
  return units.empty() ? 0 : units.back().local_begin + units.back().chunk_elements;
}

int64_t FlatLayout::whole_elements() const {
  return local_elements() * shard_count;
}

int64_t FlatLayout::gap_end(size_t index) const {
  const bool last_of_unit = index + 1 == unit_of.size() || unit_of[index + 1] != unit_of[index];
  return last_of_unit ? unit_elements(unit_of[index]) : offsets[index + 1];
}

FlatRange FlatLayout::range_of(size_t index, int shard) const {
  const FlatUnit& unit = units[unit_of[index]];
  const int64_t chunk_begin = unit.chunk_elements * shard;
  const int64_t begin = std::max(offsets[index], chunk_begin);
  const int64_t end =
      std::min(offsets[index] + element_counts[index], chunk_begin + unit.chunk_elements);
  if (begin >= end) return {};
  return {.begin = begin - offsets[index],
          .count = end - begin,
          .local_begin = unit.local_begin + begin - chunk_begin};
}

FlatLayout plan_flat_layout(const std::vector<std::string>& names,
                            const std::vector<int64_t>& element_counts, int64_t unit_elements,
                            int shard_count) {
  YARD_CHECK(unit_elements > 0 && shard_count > 0 && names.size() == element_counts.size());
  FlatLayout layout{.shard_count = shard_count, .element_counts = element_counts};
  const std::vector<size_t> starts = unit_starts(names, element_counts, unit_elements);
  for (size_t u = 0; u < starts.size(); ++u) {
    FlatUnit unit{.begin = layout.whole_elements(),
                  .local_begin = layout.local_elements(),
                  .first_parameter = starts[u]};
    const size_t end = u + 1 < starts.size() ? starts[u + 1] : names.size();
    unit.parameter_count = end - starts[u];
    int64_t filled = 0;
    for (size_t i = starts[u]; i < end; ++i) {
      YARD_CHECK(element_counts[i] >= 0);
      layout.unit_of.push_back(u);
      layout.offsets.push_back(filled);
      filled += rounded_up(element_counts[i], kAlignmentElements);
    }
    unit.chunk_elements = rounded_up(filled, kAlignmentElements * shard_count) / shard_count;
    layout.units.push_back(unit);
  }
  return layout;
}

}  // namespace yard::parallel
