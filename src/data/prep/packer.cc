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
  YARD_ASSIGN(const std::optional<ShardRecord> pending, ledger.pending());
  if (pending) YARD_TRY(packer->settle(*pending));
  YARD_TRY(packer->read_hashes());
  return packer;
}

Status Packer::read_hashes() {
  hashes_ = NearDuplicates();
  hash_objects_.clear();
  last_hash_id_ = 0;
  if (spec_.pictures.near_duplicate_distance < 0) return Ok{};
  YARD_ASSIGN(const std::vector<Ledger::Hash> hashes, ledger_.hashes());
  for (const Ledger::Hash& hash : hashes) {
    hashes_.add(hash.phash, hash.id);
    last_hash_id_ = hash.id;
  }
  for (const PackedSample& sample : samples_) add_held_hash(sample.phash, sample.object.key);
  return Ok{};
}

void Packer::add_held_hash(uint64_t phash, const std::string& key) {
  hash_objects_.emplace(next_hash_id_, key);
  hashes_.add(phash, next_hash_id_++);
}

// False: one of them is near to a sample that is held.
Result<bool> Packer::take_hashes_of_others() {
  if (spec_.pictures.near_duplicate_distance < 0) return true;
  YARD_ASSIGN(const auto hashes, ledger_.hashes_of_others(last_hash_id_));
  bool is_apart = true;
  for (const Ledger::Hash& hash : hashes) {
    for (const PackedSample& sample : samples_)
      is_apart &= phash_distance(sample.phash, hash.phash) > spec_.pictures.near_duplicate_distance;
    hashes_.add(hash.phash, hash.id);
    last_hash_id_ = hash.id;
  }
  return is_apart;
}

Status Packer::refresh() {
  YARD_TRY(ledger_.refresh());
  YARD_TRY(take_hashes_of_others());
  return remove_finished();
}

Status Packer::finish(std::string receipt) {
  finished_.push_back(std::move(receipt));
  return finished_.size() < kFinishedMax ? Ok{} : remove_finished();
}

Status Packer::remove_finished() {
  if (finished_.empty()) return Ok{};
  return place_.messages.remove(std::exchange(finished_, {}));
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

Status Packer::settle(ShardRecord shard) {
  if (shard.sample_count > 0) {
    auto info = place_.output.head(shard.key);
    if (!info && info.error().code == Code::kNotFound) {
      YARD_TRY(ledger_.forget_shard(shard.number));
      return read_hashes();
    }
    if (!info) return info.error();
    YARD_TRY(check_recovered(shard));
    shard.etag = info->etag;
    shard.size_bytes = int64_t(info->size_bytes);
  }
  YARD_TRY(ledger_.confirm_shard(shard));
  log_info("{}: was written by a run that ended before it could say so", shard.key);
  return Ok{};
}

// The message of what lies in a shard that is begun comes only where its writer keeps it no more.
Result<bool> Packer::is_done_with(const ObjectVersion& object) {
  YARD_ASSIGN(const bool is_known, ledger_.knows(object));
  if (!is_known) return false;
  YARD_ASSIGN(const auto pending, ledger_.pending_shard_of(object));
  if (!pending) return true;
  YARD_TRY(settle(*pending));
  return ledger_.knows(object);
}

Result<std::string> Packer::near_duplicate_of(const Work& work) {
  if (spec_.pictures.near_duplicate_distance < 0) return std::string();
  const auto matches = hashes_.find(work.measures.phash, spec_.pictures.near_duplicate_distance);
  for (const NearDuplicates::Match& match : matches) {
    std::string other;
    if (const auto held = hash_objects_.find(match.id); held != hash_objects_.end()) {
      other = held->second;
    } else {
      YARD_ASSIGN(other, ledger_.key_of({match.hash, match.id}));
    }
    // Empty: a shard that was forgotten had it, or it was removed.
    if (!other.empty())
      return fmt::format("near_duplicate: {} bits from {}", match.distance, other);
  }
  return std::string();
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
    YARD_ASSIGN(
        PrepShard begun,
        PrepShard::begin(place_.output, Ledger::shard_key(place_.shard_prefix, shard_number_)));
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
  if (spec_.pictures.near_duplicate_distance >= 0)
    add_held_hash(work.measures.phash, work.object.key);
  hold(work);
  return Ok{};
}

Status Packer::end_without_shard(Work& work) {
  if (work.fate == Fate::kRetry) {
    ++counts_.retried;
    return place_.messages.hide({work.receipt}, work.retry_s);
  }
  if (work.fate == Fate::kReject) {
    YARD_ASSIGN(const bool is_rejected,
                place_.messages.reject(work.receipt, work.message, work.reason));
    if (is_rejected) ++counts_.rejected;
    if (is_rejected && !work.object.key.empty()) rejected_.push_back(work.object);
    return Ok{};
  }
  ++counts_.ignored;
  return finish(std::move(work.receipt));
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
    YARD_ASSIGN(const bool is_done, is_done_with(work.object));
    if (is_done) {
      YARD_TRY(finish(std::move(work.receipt)));
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

Result<bool> Packer::fits_others(const PackedSample& sample) {
  YARD_ASSIGN(const bool has_other, ledger_.has_other_version(sample.object));
  YARD_ASSIGN(const bool is_taken, ledger_.has_sample_key(sample.sample_key));
  if (has_other || is_taken) return false;
  if (!spec_.pictures.keep_duplicates) {
    YARD_ASSIGN(const std::string twin, ledger_.object_of_sha256(sample.sha256));
    if (!twin.empty()) return false;
  }
  if (sample.contributor.empty()) return true;
  YARD_ASSIGN(const bool is_withdrawn, ledger_.is_withdrawn(sample.contributor));
  return !is_withdrawn;
}

Result<bool> Packer::still_fits() {
  for (const auto& [object, receipt] : held_) {
    YARD_ASSIGN(const bool is_known, ledger_.knows(object));
    if (is_known) return false;
  }
  for (const PackedSample& sample : samples_) {
    YARD_ASSIGN(const bool fits, fits_others(sample));
    if (!fits) return false;
  }
  return take_hashes_of_others();
}

std::vector<std::string> Packer::held_receipts() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> receipts;
  for (const auto& [object, receipt] : held_) receipts.push_back(receipt);
  return receipts;
}

Status Packer::abandon() {
  log_info("{} messages go back to the queue: another writer was faster with some", held_.size());
  YARD_TRY(place_.messages.hide(held_receipts(), 0));
  {
    const std::lock_guard lock(mutex_);
    counts_.retried += held_.size();
    forget_held();
  }
  return read_hashes();
}

// Others took this run for dead and its samples for their own.
Status Packer::unpublish(const std::string& shard_key) {
  log_warning("{}: was given up by others while it was written", shard_key);
  YARD_TRY(place_.output.remove(shard_key));
  return place_.output.remove(shards::index_key(shard_key));
}

Status Packer::flush() {
  YARD_TRY(remove_finished());
  if (held_.empty()) return Ok{};
  const auto fits = [this] { return still_fits(); };
  if (shard_) {
    ShardRecord record;
    record.number = shard_number_;
    record.key = shard_->key();
    record.sample_count = int64_t(samples_.size());
    YARD_ASSIGN(const bool is_begun, ledger_.begin_shard(record, samples_, dropped_, fits));
    if (!is_begun) return abandon();
    YARD_ASSIGN(const storage::ObjectInfo info, shard_->commit());
    record.etag = info.etag;
    record.size_bytes = int64_t(info.size_bytes);
    YARD_ASSIGN(const bool is_confirmed, ledger_.confirm_shard(record));
    if (!is_confirmed) {
      YARD_TRY(unpublish(record.key));
      return abandon();
    }
  } else {
    YARD_ASSIGN(const bool is_added, ledger_.add_dropped(dropped_, fits));
    if (!is_added) return abandon();
  }
  YARD_TRY(place_.messages.remove(held_receipts()));
  const std::lock_guard lock(mutex_);
  count_held();
  forget_held();
  return Ok{};
}

void Packer::count_held() {
  counts_.packed += samples_.size();
  counts_.dropped += dropped_.size();
  counts_.shards += shard_ ? 1 : 0;
}

void Packer::forget_held() {
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
  return place_.messages.hide(held_receipts(), int64_t(spec_.visibility.count()));
}

PackerCounts Packer::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace yard::prep
