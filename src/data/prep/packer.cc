#include <fmt/format.h>

#include "base/log.h"
#include "net/checksums.h"
#include "net/encoding.h"
#include "prep/object_events.h"
#include "prep/packer_internal.h"
#include "prep/phash.h"

namespace yard::prep {
namespace {

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Result<std::unique_ptr<Packer>> Packer::open(const PrepSpec& spec, PackerPlace place,
                                             Ledger& ledger) {
  std::unique_ptr<Packer> packer(new Packer(spec, std::move(place), ledger));
  YARD_TRY(packer->recover());
  if (spec.pictures.near_duplicate_distance >= 0) {
    YARD_ASSIGN(const std::vector<Ledger::Hash> hashes, ledger.hashes());
    for (const Ledger::Hash& hash : hashes) packer->hashes_.add(hash.phash, hash.id);
  }
  return packer;
}

Status Packer::check_recovered(const ShardRecord& shard) {
  YARD_ASSIGN(const std::vector<std::string> expected, ledger_.sample_keys(shard.number));
  YARD_ASSIGN(const shards::ScannedShard scanned, shards::scan_shard(place_.output, shard.key));
  bool is_same = scanned.index.sample_count() == expected.size();
  for (uint64_t i = 0; is_same && i < expected.size(); ++i)
    is_same = scanned.index.key(i) == expected[i];
  if (!is_same)
    return Error{Code::kCorrupt,
                 fmt::format("{}/{}: is not the shard that was begun under this name",
                             place_.output.url(), shard.key)};
  YARD_TRY(storage::put_text(place_.output, shards::index_key(shard.key), scanned.index.encode()));
  return Ok{};
}

Status Packer::recover() {
  YARD_ASSIGN(std::optional<ShardRecord> pending, ledger_.pending());
  if (!pending) return Ok{};
  if (pending->sample_count == 0) return ledger_.confirm_shard(*pending);
  auto info = place_.output.head(pending->key);
  if (!info && info.error().code == Code::kNotFound) return ledger_.forget_shard(pending->number);
  if (!info) return info.error();
  YARD_TRY(check_recovered(*pending));
  pending->etag = info->etag;
  pending->size_bytes = int64_t(info->size_bytes);
  log_info("{}: was written by a run that ended before it could say so", pending->key);
  return ledger_.confirm_shard(*pending);
}

Result<std::string> Packer::near_duplicate_of(const Work& work) {
  if (spec_.pictures.near_duplicate_distance < 0) return std::string();
  const auto match = hashes_.nearest(work.measures.phash, spec_.pictures.near_duplicate_distance);
  if (!match) return std::string();
  std::string other;
  if (const auto held = hash_objects_.find(match->id); held != hash_objects_.end()) {
    other = held->second;
  } else {
    YARD_ASSIGN(other, ledger_.key_of(match->id));
  }
  return fmt::format("near_duplicate: {} bits from {}", match->distance, other);
}

Result<std::string> Packer::duplicate_of(const Work& work) {
  if (const auto held = etags_.find(work.object.key); held != etags_.end())
    return std::string("other_version");
  YARD_ASSIGN(const bool has_other, ledger_.has_other_version(work.object));
  if (has_other) return std::string("other_version");
  const std::string contributor = work.description.text("contributor");
  if (!contributor.empty()) {
    YARD_ASSIGN(const bool is_withdrawn, ledger_.is_withdrawn(contributor));
    if (is_withdrawn) return std::string("withdrawn");
  }
  if (!spec_.pictures.keep_duplicates) {
    if (const auto held = sha256s_.find(work.measures.sha256); held != sha256s_.end())
      return "duplicate: " + held->second;
    YARD_ASSIGN(const std::string other, ledger_.object_of_sha256(work.measures.sha256));
    if (!other.empty()) return "duplicate: " + other;
  }
  return near_duplicate_of(work);
}

// Pictures of one name and different extensions are different samples.
Result<std::string> Packer::free_sample_key(const Work& work) {
  const std::string key = sample_key_of(work.stem, place_.source_prefix);
  YARD_ASSIGN(bool is_taken, ledger_.has_sample_key(key));
  if (!is_taken && !sample_keys_.contains(key)) return key;
  return key + "~" + sha256_hex(work.object.key + " " + work.object.etag).substr(0, 12);
}

Status Packer::add_to_shard(const std::string& sample_key, const Work& work) {
  Json json = work.description.to_json();
  json["key"] = sample_key;
  const std::string metadata = json_text(json);
  const std::string caption = work.description.text("caption");
  std::vector<shards::NewMember> members = {{work.extension, work.picture}};
  if (!caption.empty()) members.push_back({"txt", bytes_of(caption)});
  members.push_back({"json", bytes_of(metadata)});
  const bool is_full =
      shard_ && (shard_->size_bytes_with(sample_key, members) > spec_.shard_bytes_max ||
                 int64_t(samples_.size()) >= spec_.shard_samples_max);
  if (is_full) YARD_TRY(flush());
  if (!shard_) {
    YARD_ASSIGN(shard_number_, ledger_.next_shard_number());
    YARD_ASSIGN(PrepShard begun,
                PrepShard::begin(place_.output, shard_key_of(place_.shard_prefix, shard_number_)));
    shard_.emplace(std::move(begun));
  }
  return shard_->add(sample_key, members);
}

Status Packer::pack(Work& work) {
  YARD_ASSIGN(std::string reason, duplicate_of(work));
  if (!reason.empty()) {
    work.end(Fate::kDrop, std::move(reason));
    return Ok{};
  }
  YARD_ASSIGN(const std::string sample_key, free_sample_key(work));
  YARD_TRY(add_to_shard(sample_key, work));
  samples_.push_back({.object = work.object,
                      .sample_key = sample_key,
                      .sha256 = work.measures.sha256,
                      .phash = work.measures.phash,
                      .contributor = work.description.text("contributor"),
                      .licence = work.description.text("licence")});
  sample_keys_.insert(sample_key);
  sha256s_.emplace(work.measures.sha256, work.object.key);
  etags_.emplace(work.object.key, work.object.etag);
  if (spec_.pictures.near_duplicate_distance >= 0) {
    hash_objects_.emplace(next_hash_id_, work.object.key);
    hashes_.add(work.measures.phash, next_hash_id_++);
  }
  hold(work);
  return Ok{};
}

Status Packer::end_without_shard(Work& work) {
  if (work.fate == Fate::kRetry) {
    auto changed = place_.queues.change_visibility(place_.queue_name, work.receipt, work.retry_s);
    if (!changed) return changed.error();
    ++counts_.retried;
    return Ok{};
  }
  if (work.fate == Fate::kReject) {
    auto rejected = place_.queues.reject(place_.queue_name, work.receipt, work.reason);
    if (!rejected) return rejected.error();
    if (*rejected) ++counts_.rejected;
    return Ok{};
  }
  auto removed = place_.queues.remove(place_.queue_name, {work.receipt});
  if (!removed) return removed.error();
  ++counts_.ignored;
  return Ok{};
}

void Packer::hold(const Work& work) {
  const std::lock_guard lock(mutex_);
  if (held_.empty()) held_since_ = std::chrono::steady_clock::now();
  held_[work.object] = work.receipt;
}

Status Packer::take(Work work) {
  if (work.fate == Fate::kPack || work.fate == Fate::kDrop) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto held = held_.find(work.object); held != held_.end()) {
        held->second = work.receipt;
        ++counts_.repeated;
        return Ok{};
      }
    }
    YARD_ASSIGN(const bool is_known, ledger_.knows(work.object));
    if (is_known) {
      auto removed = place_.queues.remove(place_.queue_name, {work.receipt});
      if (!removed) return removed.error();
      const std::lock_guard lock(mutex_);
      ++counts_.repeated;
      return Ok{};
    }
    if (work.fate == Fate::kPack) YARD_TRY(pack(work));
    if (work.fate == Fate::kPack) return Ok{};
    dropped_.push_back({work.object, work.reason});
    hold(work);
    return Ok{};
  }
  const std::lock_guard lock(mutex_);
  return end_without_shard(work);
}

Status Packer::flush() {
  if (held_.empty()) return Ok{};
  if (shard_) {
    ShardRecord record;
    record.number = shard_number_;
    record.key = shard_->key();
    record.sample_count = int64_t(samples_.size());
    YARD_TRY(ledger_.begin_shard(record, samples_, dropped_));
    YARD_ASSIGN(const storage::ObjectInfo info, shard_->commit());
    record.etag = info.etag;
    record.size_bytes = int64_t(info.size_bytes);
    YARD_TRY(ledger_.confirm_shard(record));
  } else {
    YARD_TRY(ledger_.add_dropped(dropped_));
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::string> receipts;
  for (const auto& [object, receipt] : held_) receipts.push_back(receipt);
  if (auto removed = place_.queues.remove(place_.queue_name, receipts); !removed)
    return removed.error();
  forget_held();
  return Ok{};
}

void Packer::forget_held() {
  counts_.packed += samples_.size();
  counts_.dropped += dropped_.size();
  counts_.shards += shard_ ? 1 : 0;
  shard_.reset();
  samples_.clear();
  dropped_.clear();
  sample_keys_.clear();
  sha256s_.clear();
  etags_.clear();
  held_.clear();
}

std::chrono::steady_clock::duration Packer::held_for() const {
  if (held_.empty()) return {};
  return std::chrono::steady_clock::now() - held_since_;
}

Status Packer::keep_alive() {
  std::vector<std::string> receipts;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [object, receipt] : held_) receipts.push_back(receipt);
  }
  for (const std::string& receipt : receipts) {
    auto changed = place_.queues.change_visibility(place_.queue_name, receipt,
                                                   int64_t(spec_.visibility.count()));
    if (!changed) return changed.error();
  }
  return Ok{};
}

PackerCounts Packer::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace yard::prep
