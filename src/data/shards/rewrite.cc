#include "shards/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/random.h"
#include "shards/sample_name.h"
#include "shards/sample_stream.h"
#include "shards/shard_index.h"
#include "shards/shard_layout_internal.h"
#include "shards/sidecar.h"
#include "storage/work_queue.h"

namespace yard::shards {
namespace {

using storage::ObjectStore;

constexpr int kShardsAtOnce = 8;

struct OpenedShard {
  ScannedShard scanned;
  std::shared_ptr<const SourceObject> object;
};

// "./a" is how tar writes the names of a folder packed as ".".
std::string_view without_dots(std::string_view key) {
  while (key.starts_with("./")) key.remove_prefix(2);
  return key;
}

// "a-000001/" of "x/a-000001.tar.gz".
std::string name_as_folder(std::string_view shard_key) {
  shard_key.remove_prefix(shard_key.rfind('/') + 1);
  return std::string(shard_key.substr(0, shard_key.find('.'))) + "/";
}

class Rewriter {
 public:
  Rewriter(std::span<const ShardSource> sources, ObjectStore& target, const RewriteOptions& options,
           const StopToken& stop, const std::function<void(uint64_t, uint64_t)>& progress)
      : sources_(sources),
        target_(target),
        options_(options),
        stop_(stop),
        progress_(progress),
        parts_(options.parts) {
    if (parts_.empty()) parts_.push_back({.name = options.set.shards.prefix});
  }

  Result<RewriteReport> run() {
    YARD_TRY(refuse_replacing_sources());
    YARD_TRY(open_sources());
    const bool is_compressed = std::ranges::any_of(shards_, [](const OpenedShard& shard) {
      return shard.scanned.compression != TarCompression::kNone;
    });
    if (is_compressed && options_.shuffle_seed)
      return Error{Code::kInvalidArgument,
                   "compressed shards can only be read in order: repack them without --shuffle "
                   "first, then shuffle what comes out"};
    YARD_TRY(collect_keys());
    YARD_TRY(choose_parts());
    report_.parts.resize(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) report_.parts[i].name = parts_[i].name;
    YARD_TRY(is_compressed ? copy_in_order() : assemble());
    return std::move(report_);
  }

 private:
  struct Sample {
    uint32_t shard;
    uint64_t sample;
    std::string key;
  };

  std::string prefix_of(size_t part) const {
    if (options_.parts.empty()) return options_.set.shards.prefix;
    const std::string& prefix = options_.set.shards.prefix;
    return prefix.substr(0, prefix.rfind('/') + 1) + parts_[part].name;
  }

  Status refuse_replacing_sources() const {
    for (size_t part = 0; part < parts_.size(); ++part) {
      const std::string begin = fmt::format("{}/{}-", target_.url(), prefix_of(part));
      for (const ShardSource& source : sources_)
        if (source.url().starts_with(begin))
          return Error{Code::kInvalidArgument,
                       fmt::format("{} is read, and would be replaced: choose another folder or "
                                   "another name",
                                   source.url())};
    }
    return Ok{};
  }

  Status open_sources() {
    std::vector<std::optional<Result<ScannedShard>>> opened(sources_.size());
    // One shard's bad samples stay together, in the order of the shards.
    std::vector<std::vector<BadSample>> bad(sources_.size());
    {
      storage::WorkQueue queue(
          std::min(kShardsAtOnce, static_cast<int>(std::thread::hardware_concurrency()) + 1));
      for (size_t i = 0; i < sources_.size(); ++i)
        queue.push([&, i] {
          if (stop_.stopped()) return;
          BadSampleSink sink;
          if (options_.on_bad)
            sink = [&bad, i](const BadSample& sample) -> Status {
              bad[i].push_back(sample);
              return Ok{};
            };
          opened[i] = index_of(*sources_[i].store, sources_[i].key,
                               {.group_by_key = options_.group_by_key, .on_bad = sink});
        });
    }
    if (stop_.stopped()) return Error{Code::kCancelled, "stopped"};
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (!*opened[i]) return opened[i]->error();
      for (const BadSample& sample : bad[i]) YARD_TRY(options_.on_bad(sample));
      ScannedShard& scanned = **opened[i];
      auto object = std::make_shared<SourceObject>(
          SourceObject{sources_[i].store, sources_[i].key, scanned.shard.etag});
      shards_.push_back({std::move(scanned), std::move(object)});
    }
    return Ok{};
  }

  Status collect_keys() {
    for (uint32_t shard = 0; shard < shards_.size(); ++shard) {
      const ShardIndex& index = shards_[shard].scanned.index;
      const std::string prefix = options_.prefix_keys ? name_as_folder(sources_[shard].key) : "";
      for (uint64_t i = 0; i < index.sample_count(); ++i) {
        Sample sample{shard, i, prefix + std::string(without_dots(index.key(i)))};
        YARD_ASSIGN(const bool is_good, check_names(sample, index));
        if (is_good) samples_.push_back(std::move(sample));
      }
    }
    if (samples_.empty())
      return Error{Code::kInvalidArgument, "there is no sample in these shards"};
    return Ok{};
  }

  // Not every name that can be read may be written.
  Result<bool> check_names(const Sample& sample, const ShardIndex& index) const {
    for (const auto& member : index.members(sample.sample)) {
      const std::string name = index.member_name(sample.sample, member);
      auto valid = check_member(sample.key, split_member_name(name)->extension);
      if (valid) continue;
      const std::string url = sources_[sample.shard].url();
      const std::string reason =
          fmt::format("{}: offset {}: {}", url, member.offset, valid.error().message);
      if (!options_.on_bad) return Error{Code::kInvalidArgument, reason};
      YARD_TRY(options_.on_bad({.shard = url,
                                .key = sample.key,
                                .offset = member.offset,
                                .reason = reason,
                                .bytes = {{name, member.offset, member.size_bytes}}}));
      return false;
    }
    return true;
  }

  Status choose_parts() {
    if (options_.parts.empty()) {
      chosen_.assign(samples_.size(), 0);
      return Ok{};
    }
    std::vector<std::string_view> keys;
    for (const Sample& sample : samples_) keys.push_back(sample.key);
    YARD_ASSIGN(chosen_, split_keys(keys, parts_, options_.split_seed));
    return Ok{};
  }

  SampleSource source_of(const Sample& sample) const {
    const OpenedShard& shard = shards_[sample.shard];
    const ShardIndex& index = shard.scanned.index;
    SampleSource source{sample.key, {}};
    for (const auto& member : index.members(sample.sample)) {
      const std::string name = index.member_name(sample.sample, member);
      source.members.push_back({.extension = std::string(split_member_name(name)->extension),
                                .object = shard.object,
                                .offset = member.offset,
                                .size_bytes = member.size_bytes,
                                .crc32c = member.crc32c});
    }
    return source;
  }

  ShardSetOptions set_options(size_t part) const {
    ShardSetOptions set = options_.set;
    set.shards.prefix = prefix_of(part);
    return set;
  }

  Error empty_part(size_t part) const {
    return {Code::kInvalidArgument,
            fmt::format("part '{}' would have no sample", parts_[part].name)};
  }

  Status assemble() {
    std::vector<std::vector<SampleSource>> by_part(parts_.size());
    const auto order =
        options_.shuffle_seed
            ? std::optional(RandomPermutation(samples_.size(), *options_.shuffle_seed, 0))
            : std::nullopt;
    for (uint64_t i = 0; i < samples_.size(); ++i) {
      const uint64_t at = order ? order->permute(i) : i;
      by_part[chosen_[at]].push_back(source_of(samples_[at]));
    }
    uint64_t done_before = 0;
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (by_part[part].empty()) return empty_part(part);
      auto set = write_shard_set(target_, by_part[part], set_options(part), stop_,
                                 [&](uint64_t done) { tell(done_before + done); });
      if (!set) return with_advice(std::move(set).error());
      report_.resumed_count += set->resumed_count;
      report_.parts[part].shards = std::move(set->shards);
      report_.parts[part].sample_count = by_part[part].size();
      done_before += by_part[part].size();
    }
    return Ok{};
  }

  static Error with_advice(Error error) {
    if (error.message.starts_with("two samples of one shard"))
      error.message += "; --prefix-keys puts the name of its shard before each";
    return error;
  }

  void tell(uint64_t done) const {
    if (progress_) progress_(done, samples_.size());
  }

  // The way of compressed shards: one pass, sample by sample.
  Status copy_in_order() {
    std::vector<ShardWriter> writers;
    std::vector<std::vector<std::string>> existing;
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (std::ranges::find(chosen_, uint32_t(part)) == chosen_.end()) return empty_part(part);
      YARD_ASSIGN(existing.emplace_back(), existing_shards(target_, prefix_of(part)));
      if (!existing.back().empty() && !options_.set.replace)
        return Error{Code::kInvalidArgument,
                     fmt::format("{}/{} is already there; choose another --prefix, or --replace",
                                 target_.url(), existing.back().front())};
      YARD_ASSIGN(ShardWriter writer, ShardWriter::create(target_, set_options(part).shards));
      writers.push_back(std::move(writer));
    }
    uint64_t next = 0;
    for (uint32_t shard = 0; shard < shards_.size(); ++shard)
      YARD_TRY(copy_shard(shard, next, writers));
    for (size_t part = 0; part < parts_.size(); ++part) {
      YARD_ASSIGN(report_.parts[part].shards, writers[part].finish());
      YARD_TRY(remove_left_over(target_, existing[part], report_.parts[part].shards));
    }
    return Ok{};
  }

  Status copy_shard(uint32_t shard, uint64_t& next, std::vector<ShardWriter>& writers) {
    YARD_ASSIGN(SampleStream stream,
                SampleStream::open(*sources_[shard].store, std::move(shards_[shard].scanned)));
    // Samples that were left out for their names are not in samples_. With group_by_key samples
    // come when they are whole, which may be another order.
    std::map<std::string, uint64_t, std::less<>> wanted;
    for (; next < samples_.size() && samples_[next].shard == shard; ++next)
      wanted.emplace(samples_[next].key, next);
    const std::string prefix = options_.prefix_keys ? name_as_folder(sources_[shard].key) : "";
    for (;;) {
      if (stop_.stopped()) return Error{Code::kCancelled, "stopped"};
      YARD_ASSIGN(const auto streamed, stream.next());
      if (!streamed) return Ok{};
      const auto found = wanted.find(prefix + std::string(without_dots(streamed->key)));
      if (found == wanted.end()) continue;
      std::vector<NewMember> members;
      for (const auto& member : streamed->members)
        members.push_back({member.extension, member.content});
      const uint32_t part = chosen_[found->second];
      if (auto added = writers[part].add(found->first, members); !added)
        return with_advice(std::move(added).error());
      ++report_.parts[part].sample_count;
      tell(++copied_count_);
    }
  }

  const std::span<const ShardSource> sources_;
  ObjectStore& target_;
  const RewriteOptions& options_;
  const StopToken& stop_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  std::vector<SplitPart> parts_;
  std::vector<OpenedShard> shards_;
  std::vector<Sample> samples_;
  std::vector<uint32_t> chosen_;  // part, of each sample
  uint64_t copied_count_ = 0;
  RewriteReport report_;
};

}  // namespace

Result<RewriteReport> rewrite(std::span<const ShardSource> sources, ObjectStore& target,
                              const RewriteOptions& options, const StopToken& stop,
                              const std::function<void(uint64_t, uint64_t)>& progress) {
  return Rewriter(sources, target, options, stop, progress).run();
}

}  // namespace yard::shards
