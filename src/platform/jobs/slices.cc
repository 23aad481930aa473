#include "jobs/slices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace yard::jobs {
namespace {

bool contains(const std::vector<int>& list, int item) {
  return std::ranges::find(list, item) != list.end();
}

struct Use {
  int slices = 0;
  bool is_exclusive = false;
};

// Who has the items of one kind (cores or GPUs) now.
std::map<int, Use> uses_of(const std::vector<int>& items, const std::vector<Slice>& held,
                           std::vector<int> Slice::*member) {
  std::map<int, Use> uses;
  for (const int item : items) uses[item];
  for (const Slice& slice : held) {
    for (const int item : slice.*member) {
      uses[item].slices += 1;
      uses[item].is_exclusive |= !slice.is_shared;
    }
  }
  return uses;
}

// `count` of the items, those with the fewest users first; nullopt when too few may be taken.
std::optional<std::vector<int>> take(const std::vector<int>& items, const std::map<int, Use>& uses,
                                     int count, bool is_shared) {
  std::vector<int> free;
  for (const int item : items) {
    const Use& use = uses.at(item);
    if (!use.is_exclusive && (is_shared || use.slices == 0)) free.push_back(item);
  }
  if (static_cast<int>(free.size()) < count) return std::nullopt;
  std::ranges::stable_sort(free, {}, [&](int item) { return uses.at(item).slices; });
  free.resize(static_cast<size_t>(count));
  std::ranges::sort(free);
  return free;
}

int lowest_free_number(const std::vector<Slice>& held, const std::vector<int>& avoid) {
  int number = 1;
  const auto is_taken = [&] {
    return contains(avoid, number) ||
           std::ranges::any_of(held, [&](const Slice& slice) { return slice.number == number; });
  };
  while (is_taken()) ++number;
  return number;
}

bool memory_fits(const SliceConfig& config, const std::vector<Slice>& held,
                 const InstanceShape& shape) {
  if (shape.is_shared || config.machine_memory_bytes == 0) return true;
  uint64_t taken = shape.memory_bytes;
  for (const Slice& slice : held)
    if (!slice.is_shared) taken += slice.memory_bytes;
  return taken <= config.machine_memory_bytes;
}

std::optional<Slice> place_one(const SliceConfig& config, const std::vector<Slice>& held,
                               const std::string& type, const std::vector<int>& avoid) {
  const InstanceShape& shape = shape_of(config, type);
  const auto of_type = std::ranges::count(held, type, &Slice::instance_type);
  if (shape.slice_count_max > 0 && of_type >= shape.slice_count_max) return std::nullopt;
  const int number = lowest_free_number(held, avoid);
  if (number > config.slice_count_max || !memory_fits(config, held, shape)) return std::nullopt;
  const int cores =
      shape.core_count > 0 ? shape.core_count : static_cast<int>(config.machine_cores.size());
  const int gpus =
      shape.gpu_count >= 0 ? shape.gpu_count : static_cast<int>(config.machine_gpus.size());
  auto own_cores = take(config.machine_cores, uses_of(config.machine_cores, held, &Slice::cores),
                        cores, shape.is_shared);
  auto own_gpus = take(config.machine_gpus, uses_of(config.machine_gpus, held, &Slice::gpus), gpus,
                       shape.is_shared);
  if (!own_cores || !own_gpus) return std::nullopt;
  return Slice{number,
               type,
               *std::move(own_cores),
               *std::move(own_gpus),
               shape.memory_bytes,
               shape.price_per_hour,
               shape.is_shared};
}

// Empty when they do not all fit; `misfit` is then the type that did not.
std::vector<Slice> place_all(const SliceConfig& config, std::vector<Slice> held,
                             const std::vector<std::string>& types, const std::vector<int>& avoid,
                             std::string& misfit) {
  std::vector<Slice> placed;
  for (const auto& type : types) {
    auto slice = place_one(config, held, type, avoid);
    if (!slice) {
      misfit = type;
      return {};
    }
    held.push_back(*slice);
    placed.push_back(*std::move(slice));
  }
  return placed;
}

}  // namespace

const InstanceShape& shape_of(const SliceConfig& config, std::string_view instance_type) {
  const auto it = std::ranges::find(config.shapes, instance_type, &InstanceShape::type);
  return it == config.shapes.end() ? config.default_shape : *it;
}

Result<std::vector<Slice>> place_slices(const SliceConfig& config, const std::vector<Slice>& held,
                                        const std::vector<std::string>& instance_types,
                                        const std::vector<int>& avoid) {
  YARD_CHECK(!instance_types.empty());
  std::string misfit;
  auto placed = place_all(config, held, instance_types, avoid, misfit);
  if (!placed.empty()) return placed;
  const std::string waits_for = misfit;
  if (!place_all(config, {}, instance_types, avoid, misfit).empty())
    return Error{Code::kExhausted, fmt::format("all hosts of type {} are taken", waits_for)};
  return Error{Code::kInvalidArgument,
               fmt::format("this machine has no {} hosts for it: type {} does not fit{}",
                           instance_types.size(), misfit,
                           avoid.empty() ? "" : " beside those that are faulty")};
}

bool is_declared_faulty(const SliceConfig& config, int number) {
  return contains(config.faulty_slices, number);
}

}  // namespace yard::jobs
