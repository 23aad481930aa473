#include "checkpoint/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "checkpoint/manifest.h"
#include "storage/keys.h"

namespace yard::checkpoint {
namespace {

uint64_t bytes_of(const ChunkInfo& chunk) {
  return chunk_bytes(chunk.info, chunk.region);
}

Error about(std::string_view name, std::string_view why) {
  return {Code::kInvalidArgument, fmt::format("tensor '{}': {}", name, why)};
}

// One chunk and the ranks that have it.
struct Holder {
  int rank;
  size_t index;  // in its layout
};
struct SharedChunk {
  const ChunkInfo* chunk;
  std::vector<Holder> holders;
};

struct SeenTensor {
  const ChunkInfo* first;
  int first_rank;
  std::map<Region, SharedChunk> chunks;  // by their canonical regions
};
using SeenTensors = std::map<std::string_view, SeenTensor>;

Result<SeenTensors> collect(const std::vector<Layout>& layouts) {
  SeenTensors tensors;
  for (size_t rank = 0; rank < layouts.size(); ++rank) {
    for (size_t i = 0; i < layouts[rank].size(); ++i) {
      const ChunkInfo& chunk = layouts[rank][i];
      const int number = static_cast<int>(rank);
      SeenTensor& seen =
          tensors.try_emplace(chunk.name, SeenTensor{&chunk, number, {}}).first->second;
      if (seen.first->info != chunk.info)
        return about(chunk.name,
                     fmt::format("is {} on rank {} and {} on rank {}", to_string(seen.first->info),
                                 seen.first_rank, to_string(chunk.info), rank));
      SharedChunk& shared = seen.chunks[canonical(chunk.region, chunk.info.shape)];
      if (shared.holders.empty()) shared.chunk = &chunk;
      shared.holders.push_back({number, i});
    }
  }
  return tensors;
}

Status check_covers(const SeenTensors& tensors) {
  for (const auto& [name, seen] : tensors) {
    std::vector<Region> regions;
    for (const auto& [region, shared] : seen.chunks) regions.push_back(region);
    if (Status covered = check_cover(regions, seen.first->info.shape); !covered)
      return about(name, covered.error().message);
  }
  return Ok{};
}

const Holder* lightest(const SharedChunk& shared, const Flags& has_bytes,
                       const std::vector<uint64_t>& load_bytes) {
  const Holder* best = nullptr;
  for (const Holder& holder : shared.holders) {
    const auto rank = static_cast<size_t>(holder.rank);
    if (!has_bytes[rank][holder.index]) continue;
    if (best == nullptr || load_bytes[rank] < load_bytes[static_cast<size_t>(best->rank)])
      best = &holder;
  }
  return best;
}

}  // namespace

Status check_layout(const Layout& layout) {
  std::set<std::pair<std::string_view, Region>> seen;
  for (const ChunkInfo& chunk : layout) {
    if (chunk.name.empty() || chunk.name.size() > kTensorNameBytesMax ||
        !storage::is_utf8(chunk.name) || chunk.name == "__metadata__")
      return Error{Code::kInvalidArgument,
                   fmt::format("'{}' cannot be a tensor's name", chunk.name)};
    Status valid = check_tensor(chunk.info);
    if (valid) valid = check_region(chunk.region, chunk.info.shape);
    if (!valid) return about(chunk.name, valid.error().message);
    if (!seen.emplace(chunk.name, canonical(chunk.region, chunk.info.shape)).second)
      return about(chunk.name, "the same chunk is given twice");
  }
  return Ok{};
}

Json to_json(const Layout& layout) {
  Json chunks = Json::array();
  for (const ChunkInfo& chunk : layout) {
    Json json = to_json(chunk.region);
    json.update(to_json(chunk.info));
    json["name"] = chunk.name;
    chunks.push_back(std::move(json));
  }
  return chunks;
}

Result<Layout> layout_from_json(const Json& json, std::string_view what) {
  Layout layout;
  if (!json.is_array())
    return Error{Code::kInvalidArgument, fmt::format("{}: no list of chunks", what)};
  for (const Json& each : json) {
    ChunkInfo& chunk = layout.emplace_back();
    YARD_ASSIGN(chunk.name, json_field<std::string>(each, "name", what));
    YARD_ASSIGN(chunk.info, tensor_info_from_json(each, what));
    YARD_ASSIGN(chunk.region, region_from_json(each, what));
  }
  YARD_TRY(check_layout(layout));
  return layout;
}

Result<Flags> plan_owners(const std::vector<Layout>& layouts, const Flags& has_bytes) {
  YARD_ASSIGN(const SeenTensors tensors, collect(layouts));
  YARD_TRY(check_covers(tensors));
  std::vector<const SharedChunk*> all;
  for (const auto& [name, seen] : tensors)
    for (const auto& [region, shared] : seen.chunks) all.push_back(&shared);
  // The largest first, so that the small ones even out what these leave.
  std::ranges::stable_sort(all, std::greater(),
                           [](const SharedChunk* shared) { return bytes_of(*shared->chunk); });
  Flags owns;
  for (const Layout& layout : layouts) owns.emplace_back(layout.size(), false);
  std::vector<uint64_t> load_bytes(layouts.size(), 0);
  for (const SharedChunk* shared : all) {
    const Holder* owner = lightest(*shared, has_bytes, load_bytes);
    if (owner == nullptr)
      return about(shared->chunk->name, "the rank that was to write a chunk of it has none now");
    owns[static_cast<size_t>(owner->rank)][owner->index] = true;
    load_bytes[static_cast<size_t>(owner->rank)] += bytes_of(*shared->chunk);
  }
  return owns;
}

std::vector<size_t> file_order(const Layout& layout, const std::vector<bool>& owned) {
  std::vector<size_t> order;
  for (size_t i = 0; i < layout.size(); ++i)
    if (owned[i]) order.push_back(i);
  std::ranges::sort(order, [&](size_t a, size_t b) {
    const uint64_t wide_a = element_bytes(layout[a].info.dtype);
    const uint64_t wide_b = element_bytes(layout[b].info.dtype);
    if (wide_a != wide_b) return wide_a > wide_b;
    return std::tie(layout[a].name, layout[a].region) < std::tie(layout[b].name, layout[b].region);
  });
  return order;
}

std::vector<std::vector<size_t>> cut_into_files(const Layout& layout,
                                                const std::vector<size_t>& order,
                                                const FileSizeRule& rule) {
  const uint64_t total = std::transform_reduce(order.begin(), order.end(), uint64_t{0}, std::plus(),
                                               [&](size_t i) { return bytes_of(layout[i]); });
  const uint64_t count = std::clamp<uint64_t>(total / std::max<uint64_t>(rule.file_bytes_min, 1), 1,
                                              std::max<uint64_t>(rule.file_count_max, 1));
  const uint64_t wanted = std::min(total / count + 1, std::max<uint64_t>(rule.file_bytes_max, 1));
  std::vector<std::vector<size_t>> files;
  uint64_t filled = 0;
  for (const size_t i : order) {
    const uint64_t size_bytes = bytes_of(layout[i]);
    // A chunk goes where most of it belongs.
    if (files.empty() || (filled > 0 && filled + size_bytes / 2 >= wanted)) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(i);
    filled += size_bytes;
  }
  return files;
}

std::string entry_name(const ChunkInfo& chunk) {
  return chunk.name + to_string(chunk.region, chunk.info.shape);
}

}  // namespace yard::checkpoint
