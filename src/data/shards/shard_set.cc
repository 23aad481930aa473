#include "shards/shard_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/log.h"
#include "shards/shard_index.h"
#include "shards/shard_layout_internal.h"
#include "shards/stable_hash_internal.h"
#include "storage/keys.h"

namespace yard::shards {
namespace {

using storage::ObjectInfo;
using storage::ObjectStore;

constexpr uint64_t kMarkerBytesMax = 4096;

std::string marker_key(const std::string& prefix) {
  return prefix + ".packing";
}

// Of everything that decides the bytes; the etags stand for the contents.
std::string fingerprint(std::span<const SampleSource> samples, uint64_t size_bytes_max) {
  StableHash hash;
  hash.add(size_bytes_max).add(uint64_t{samples.size()});
  for (const SampleSource& sample : samples) {
    hash.add(sample.key).add(uint64_t{sample.members.size()});
    for (const MemberSource& member : sample.members) {
      hash.add(member.extension).add(member.offset).add(member.size_bytes).add(member.text);
      if (member.object) hash.add(member.object->key).add(member.object->etag);
    }
  }
  return fmt::format("{:016x}", hash.value());
}

struct Marker {
  std::string plan;
  uint64_t shards_done = 0;
};

Result<std::optional<Marker>> read_marker(ObjectStore& target, const std::string& prefix) {
  const std::string key = marker_key(prefix);
  const auto text = storage::get_all(target, key, kMarkerBytesMax);
  if (!text && text.error().code == Code::kNotFound) return std::optional<Marker>();
  if (!text) return text.error();
  const std::string what = target.url() + "/" + key;
  YARD_ASSIGN(const Json json, parse_json(*text, what));
  YARD_ASSIGN(std::string plan, json_field<std::string>(json, "plan", what));
  YARD_ASSIGN(const auto shards_done, json_field<uint64_t>(json, "shards_done", what));
  return std::optional(Marker{std::move(plan), shards_done});
}

Status write_marker(ObjectStore& target, const std::string& prefix, const Marker& marker) {
  const Json json{{"plan", marker.plan}, {"shards_done", marker.shards_done}};
  YARD_TRY(storage::put_text(target, marker_key(prefix), json.dump() + "\n"));
  return Ok{};
}

// How many shards from the first on are there as they were planned, index and all.
Result<std::vector<ShardSummary>> done_shards(ObjectStore& target, const std::string& prefix,
                                              std::span<const PlannedShard> shards,
                                              uint64_t count_max) {
  std::vector<ShardSummary> done;
  for (uint64_t i = 0; i < std::min<uint64_t>(count_max, shards.size()); ++i) {
    const std::string key = shard_key(prefix, i);
    const auto shard = target.head(key);
    const auto index = shard ? target.head(index_key(key)) : shard;
    if (!index && index.error().code != Code::kNotFound) return index.error();
    if (!index || shard->size_bytes != shards[i].size_bytes) break;
    done.push_back({key, shard->size_bytes, shards[i].sample_count});
  }
  return done;
}

// "Goes on" for who reads the error, where there is something to go on with.
Error with_way_on(Error error, uint64_t shards_done) {
  if (shards_done == 0) return error;
  error.message += fmt::format("; {} {} done, the same command goes on from there", shards_done,
                               shards_done == 1 ? "shard is" : "shards are");
  return error;
}

}  // namespace

Result<std::vector<std::string>> existing_shards(ObjectStore& target, const std::string& prefix) {
  YARD_ASSIGN(const auto objects, storage::list_all(target, prefix + "-"));
  std::vector<std::string> keys;
  for (const ObjectInfo& object : objects) {
    std::string_view rest = std::string_view(object.key).substr(prefix.size() + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of("0123456789"), rest.size()));
    if (rest == ".tar" || rest == ".tar.idx") keys.push_back(object.key);
  }
  return keys;
}

Status remove_left_over(ObjectStore& target, const std::vector<std::string>& existing,
                        const std::vector<ShardSummary>& written) {
  std::set<std::string> keep;
  for (const ShardSummary& shard : written) {
    keep.insert(shard.key);
    keep.insert(index_key(shard.key));
  }
  std::vector<std::string> others;
  for (const std::string& key : existing)
    if (!keep.contains(key)) others.push_back(key);
  return target.remove_all(others);
}

Result<ShardSet> write_shard_set(ObjectStore& target, std::span<const SampleSource> samples,
                                 const ShardSetOptions& options, const StopToken& stop,
                                 const std::function<void(uint64_t)>& samples_done) {
  const std::string& prefix = options.shards.prefix;
  YARD_TRY(storage::check_key(prefix + "-000000.tar.idx"));
  YARD_ASSIGN(const auto shards, plan_shards(samples, options.shards.size_bytes_max));
  if (shards.empty()) return Error{Code::kInvalidArgument, "there is no sample to make shards of"};

  Marker marker{fingerprint(samples, options.shards.size_bytes_max)};
  YARD_ASSIGN(const auto existing, existing_shards(target, prefix));
  YARD_ASSIGN(const auto found, read_marker(target, prefix));
  ShardSet set;
  if (found && found->plan == marker.plan) {
    YARD_ASSIGN(set.shards, done_shards(target, prefix, shards, found->shards_done));
    set.resumed_count = set.shards.size();
    if (set.resumed_count > 0)
      log_info("{}/{}: going on behind {} shards", target.url(), prefix, set.resumed_count);
  } else if (!existing.empty() && !options.replace) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}/{} is already there{}; choose another --prefix, or --replace",
                             target.url(), existing.front(),
                             found ? ", of a run with other samples that was broken off" : "")};
  }

  marker.shards_done = set.shards.size();
  YARD_TRY(write_marker(target, prefix, marker));
  const AssemblyEvents events{.on_shard = [&](uint64_t, const ShardSummary& shard) -> Status {
                                set.shards.push_back(shard);
                                marker.shards_done = set.shards.size();
                                // The last one ends the run, and the marker with it.
                                if (set.shards.size() == shards.size()) return Ok{};
                                return write_marker(target, prefix, marker);
                              },
                              .on_samples = samples_done};
  auto assembled = assemble_shards(target, samples, shards,
                                   {.prefix = prefix,
                                    .first_shard = set.shards.size(),
                                    .memory_bytes = options.memory_bytes,
                                    .stop = stop},
                                   events);
  if (!assembled) {
    // Nothing to go on with: leave no trace. The first error is the one to tell.
    const auto left = existing_shards(target, prefix);
    if (left && left->empty()) static_cast<void>(target.remove(marker_key(prefix)));
    return with_way_on(std::move(assembled).error(), set.shards.size());
  }
  YARD_TRY(remove_left_over(target, existing, set.shards));
  YARD_TRY(target.remove(marker_key(prefix)));
  return set;
}

}  // namespace yard::shards
