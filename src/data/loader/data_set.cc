#include <fmt/format.h>

#include <algorithm>

#include "loader/data_set_internal.h"
#include "shards/sample_name.h"

namespace yard::loader {
namespace {

// "png, jpg" -> {"png", "jpg"}
std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(", "), list.size());
    if (end > 0) names.push_back(shards::to_lower(list.substr(0, end)));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return names;
}

}  // namespace

Result<DataSet> DataSet::open(storage::ObjectStore& store, const LoaderOptions& options) {
  DataSet set;
  set.store_ = &store;
  set.image_members_ = split_list(options.image_members);
  set.caption_member_ = shards::to_lower(options.caption_member);
  std::vector<std::string> keys = options.shards;
  std::ranges::sort(keys);
  if (const auto twice = std::ranges::adjacent_find(keys); twice != keys.end())
    return Error{Code::kInvalidArgument, fmt::format("shard '{}' is given twice", *twice)};
  for (const std::string& key : keys) {
    YARD_ASSIGN(auto shard, shards::ShardReader::open(store, key));
    set.ends_.push_back(set.sample_count() + shard.index().sample_count());
    set.shards_.push_back(std::move(shard));
  }
  return set;
}

DataSet::Place DataSet::place(uint64_t sample_id) const {
  YARD_CHECK(sample_id < sample_count());
  const auto shard = size_t(std::ranges::upper_bound(ends_, sample_id) - ends_.begin());
  Place place{.shard = &shards_[shard], .sample = sample_id - (shard == 0 ? 0 : ends_[shard - 1])};
  const auto& index = place.shard->index();
  place.caption = index.find(place.sample, caption_member_);
  for (const std::string& extension : image_members_) {
    place.image = index.find(place.sample, extension);
    if (place.image != nullptr) break;
  }
  return place;
}

std::string DataSet::key(const Place& place) const {
  return fmt::format("{}/{}", place.shard->shard().key, place.shard->index().key(place.sample));
}

Status DataSet::check(const Place& place) const {
  if (place.image != nullptr && place.caption != nullptr) return Ok{};
  std::vector<std::string_view> present;
  for (const auto& member : place.shard->index().members(place.sample))
    present.push_back(place.shard->index().extension(member));
  const std::string wanted = place.image == nullptr
                                 ? fmt::format("picture ({})", fmt::join(image_members_, ", "))
                                 : fmt::format("caption ({})", caption_member_);
  return Error{Code::kCorrupt,
               fmt::format("{}: no {}; its members are: {}", place.shard->where(place.sample),
                           wanted, fmt::join(present, ", "))};
}

Status DataSet::check_all() const {
  for (uint64_t id = 0; id < sample_count(); ++id) YARD_TRY(check(place(id)));
  return Ok{};
}

bool DataSet::is_unchanged(const Place& place) const {
  const auto now = store_->head(place.shard->shard().key);
  return now && now->etag == place.shard->shard().etag;
}

}  // namespace yard::loader
