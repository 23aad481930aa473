#include "checkpoint/load.h"

#include <fmt/format.h>

#include "base/nearest_name.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/read_plan_internal.h"

namespace yard::checkpoint {
namespace {

Result<const TensorRecord*> find_tensor(const CheckpointManifest& manifest,
                                        const std::string& name) {
  const auto found = manifest.tensors.find(name);
  if (found != manifest.tensors.end()) return &found->second;
  std::vector<std::string_view> names;
  for (const auto& [known, tensor] : manifest.tensors) names.push_back(known);
  const std::string_view nearest = nearest_name(name, names);
  return Error{Code::kNotFound,
               fmt::format("no tensor '{}' among its {}{}", name, names.size(),
                           nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest))};
}

Result<const TensorRecord*> check_target(const CheckpointManifest& manifest,
                                         const TensorTarget& target) {
  YARD_ASSIGN(const TensorRecord* tensor, find_tensor(manifest, target.name));
  const auto refuse = [&](std::string_view why) {
    return Error{Code::kInvalidArgument, fmt::format("tensor '{}': {}", target.name, why)};
  };
  if (tensor->info != target.info)
    return refuse(fmt::format("is {}, not {}", to_string(tensor->info), to_string(target.info)));
  if (Status valid = check_region(target.region, target.info.shape); !valid)
    return refuse(valid.error().message);
  const uint64_t needed = chunk_bytes(target.info, target.region);
  if (needed == target.bytes.size()) return tensor;
  return refuse(fmt::format("{} bytes are wanted of it, but there is memory for {}", needed,
                            target.bytes.size()));
}

}  // namespace

Status load(const CheckpointStore& checkpoints, const CheckpointManifest& manifest,
            std::span<const TensorTarget> targets, const LoadOptions& options) {
  const std::string folder = checkpoints.folder_of(manifest.step);
  ReadPlan plan(manifest, options.verify);
  for (const TensorTarget& target : targets) {
    auto tensor = check_target(manifest, target);
    if (!tensor)
      return std::move(tensor).error().while_(
          checkpoints.url_of(checkpoints.manifest_key(manifest.step)));
    plan.add(target.name, **tensor, target.region, target.bytes);
  }
  return read_planned(checkpoints.store(), folder, manifest, plan, options);
}

}  // namespace yard::checkpoint
