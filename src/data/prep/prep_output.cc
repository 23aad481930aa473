#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/log.h"
#include "prep/kept_queue_internal.h"
#include "prep/packer_internal.h"
#include "prep/prep_run.h"
#include "shards/shard_reader.h"
#include "storage/commit.h"

namespace yard::prep {
namespace {

Json shard_json(const ShardRecord& shard) {
  return {{"key", shard.key},
          {"etag", shard.etag},
          {"size_bytes", shard.size_bytes},
          {"sample_count", shard.sample_count}};
}

// Its samples but those that are removed, in their order; by the shard's own index, so that every
// byte is checked on the way.
Status copy_kept(const shards::ShardReader& reader, const std::vector<std::string>& kept_keys,
                 PrepShard& target) {
  const std::unordered_set<std::string> kept(kept_keys.begin(), kept_keys.end());
  std::vector<std::byte> buffer;
  for (uint64_t sample = 0; sample < reader.index().sample_count(); ++sample) {
    const std::string key(reader.index().key(sample));
    if (!kept.contains(key)) continue;
    const auto members = reader.index().members(sample);
    YARD_ASSIGN(const auto contents, reader.read(sample, members, buffer));
    std::vector<shards::NewMember> copies;
    for (size_t i = 0; i < members.size(); ++i)
      copies.push_back({std::string(reader.index().extension(members[i])), contents[i]});
    YARD_TRY(target.add(key, copies));
  }
  return Ok{};
}

// How many samples left it.
Result<uint64_t> rewrite_shard(storage::ObjectStore& output, Ledger& ledger, ShardRecord shard) {
  YARD_ASSIGN(const std::vector<std::string> kept, ledger.sample_keys(shard.number));
  const auto left = uint64_t(std::max<int64_t>(0, shard.sample_count - int64_t(kept.size())));
  if (kept.empty()) {
    YARD_TRY(output.remove(shard.key));
    YARD_TRY(output.remove(shards::index_key(shard.key)));
    shard.size_bytes = 0;
    shard.etag.clear();
  } else {
    YARD_ASSIGN(const shards::ShardReader reader, shards::ShardReader::open(output, shard.key));
    YARD_ASSIGN(PrepShard target, PrepShard::begin(output, shard.key));
    YARD_TRY(copy_kept(reader, kept, target));
    if (target.sample_count() != kept.size())
      return Error{Code::kCorrupt,
                   fmt::format("{}/{}: holds {} of {} samples that it should", output.url(),
                               shard.key, target.sample_count(), kept.size())};
    YARD_ASSIGN(const storage::ObjectInfo info, target.commit());
    shard.size_bytes = int64_t(info.size_bytes);
    shard.etag = info.etag;
  }
  shard.sample_count = int64_t(kept.size());
  YARD_TRY(ledger.rewritten(shard));
  return left;
}

}  // namespace

namespace {

Status put_manifest(const PrepSpec& spec, const PrepPlaces& places, Ledger& ledger,
                    int64_t version) {
  YARD_ASSIGN(const std::vector<ShardRecord> shards, ledger.shards());
  YARD_ASSIGN(const LedgerCounts counts, ledger.counts());
  std::string lines;
  for (const ShardRecord& shard : shards) lines += shard_json(shard).dump() + "\n";
  const Json note = {{"kind", "prep"},
                     {"name", spec.name},
                     {"version", version},
                     {"shard_count", counts.shard_count},
                     {"sample_count", counts.packed},
                     {"size_bytes", counts.shard_bytes},
                     {"removed_count", counts.removed},
                     {"dropped", counts.dropped}};
  const std::string base = places.output_prefix + spec.prefix;
  for (const std::string& key :
       {fmt::format("{}.manifests/{:06}", base, version), base + ".manifest"}) {
    YARD_ASSIGN(storage::Commit commit, storage::Commit::begin(*places.output, key));
    YARD_TRY(commit.put("shards.jsonl", std::as_bytes(std::span(lines.data(), lines.size()))));
    YARD_TRY(commit.publish(note));
    // Of a version before, or of a run that was killed on the way.
    auto swept = storage::sweep_parts(*places.output, key, std::chrono::minutes(10));
    if (!swept) log_warning("{}: old parts stay: {}", key, swept.error().message);
  }
  return Ok{};
}

}  // namespace

Status publish_manifest(const PrepSpec& spec, const PrepPlaces& places, Ledger& ledger) {
  YARD_TRY(ledger.refresh());
  YARD_ASSIGN(int64_t version, ledger.manifest_due());
  bool is_last = version == 0;
  while (!is_last) {
    YARD_TRY(put_manifest(spec, places, ledger, version));
    YARD_ASSIGN(is_last, ledger.manifest_published(version));
    if (is_last) break;
    // Another writer was faster, and its manifest may lie under ours, which is older.
    YARD_ASSIGN(const int64_t due, ledger.manifest_due());
    version = due == 0 ? version + 1 : due;
  }
  return Ok{};
}

Result<RemovalReport> remove_contributor(const PrepSpec& spec, const PrepPlaces& places,
                                         const std::string& contributor, const StopToken& stop) {
  if (contributor.empty()) return Error{Code::kInvalidArgument, "the contributor has no name"};
  PrepPlaces own = places;
  // Of a journal nobody knows who is at work: as none of those.
  if (own.journal && own.writer < 0) own.writer = Ledger::kWritersMax - 1;
  YARD_ASSIGN(Ledger ledger, open_ledger(own));
  {
    // A shard of a run that died is settled first.
    YARD_TRY(fetch_queue(spec, own));
    YARD_ASSIGN(const auto messages, open_messages(spec, own));
    YARD_ASSIGN(const auto packer,
                Packer::open(spec,
                             {*messages, *places.output, places.output_prefix + spec.prefix,
                              places.source_prefix},
                             ledger));
  }
  YARD_ASSIGN(const std::vector<ShardRecord> stale, ledger.withdraw(contributor));
  RemovalReport report;
  for (const ShardRecord& shard : stale) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_ASSIGN(const uint64_t left, rewrite_shard(*places.output, ledger, shard));
    report.sample_count += left;
    ++report.shard_count;
  }
  YARD_TRY(publish_manifest(spec, places, ledger));
  YARD_ASSIGN(const bool is_unsettled, ledger.has_unsettled_removals());
  if (is_unsettled)
    return Error{Code::kUnavailable,
                 "a shard with some of theirs is just being written; once that run has gone on, "
                 "the same command ends it"};
  return report;
}

}  // namespace yard::prep
