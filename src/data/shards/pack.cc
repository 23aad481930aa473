#include "shards/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "shards/sample_name.h"
#include "shards/shard_index.h"

namespace yard::shards {
namespace {

using storage::ObjectInfo;
using storage::ObjectStore;

bool is_hidden(std::string_view key) {
  return key.starts_with('.') || key.find("/.") != key.npos;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string extension_of(const ObjectInfo& file) {
  return to_lower(split_member_name(file.key)->extension);
}

bool has_any(const SampleFiles& sample, const std::vector<std::string>& extensions) {
  return std::ranges::any_of(sample.files, [&](const ObjectInfo& file) {
    return contains(extensions, extension_of(file));
  });
}

// Takes the samples that lack something out of the list, or refuses the first of them.
Status apply(MissingPolicy policy, std::vector<SampleFiles>& samples,
             const std::function<bool(const SampleFiles&)>& is_whole,
             const std::function<std::string(const SampleFiles&)>& complaint,
             std::vector<std::string>& left_out) {
  std::vector<SampleFiles> kept;
  for (SampleFiles& sample : samples) {
    if (is_whole(sample)) {
      kept.push_back(std::move(sample));
      continue;
    }
    if (policy == MissingPolicy::kFail) return Error{Code::kInvalidArgument, complaint(sample)};
    left_out.push_back(sample.key);
  }
  samples = std::move(kept);
  return Ok{};
}

Status apply_policies(const PackOptions& options, const ObjectStore& source,
                      std::vector<SampleFiles>& samples, PackReport& report) {
  const auto has_picture = [&](const SampleFiles& s) {
    return has_any(s, options.picture_extensions);
  };
  const auto has_caption = [&](const SampleFiles& s) {
    return has_any(s, {options.caption_extension});
  };
  if (std::ranges::none_of(samples, has_picture)) return Ok{};
  const auto file = [&](const SampleFiles& s) { return source.url() + "/" + s.files.front().key; };
  YARD_TRY(apply(
      options.missing_picture, samples, has_picture,
      [&](const SampleFiles& s) {
        return fmt::format(
            "{} has no picture beside it ({}); --missing-picture skip leaves such "
            "samples out",
            file(s), fmt::join(options.picture_extensions, ", "));
      },
      report.without_picture));
  return apply(
      options.missing_caption, samples, has_caption,
      [&](const SampleFiles& s) {
        return fmt::format(
            "{} has no caption: there is no {}/{}.{}; --missing-caption skip leaves "
            "such pictures out",
            file(s), source.url(), s.key, options.caption_extension);
      },
      report.without_caption);
}

// Shards and indexes of our prefix: "<prefix>-<digits>.tar", with ".idx".
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
  for (const std::string& key : existing)
    if (!keep.contains(key)) YARD_TRY(target.remove(key));
  return Ok{};
}

Status add_sample(ObjectStore& source, const SampleFiles& sample, ShardWriter& writer,
                  PackReport& report) {
  std::vector<std::vector<std::byte>> contents;
  std::vector<NewMember> members;
  for (const ObjectInfo& file : sample.files) {
    contents.emplace_back(file.size_bytes);
    YARD_TRY(source.get_range(file.key, file.etag, 0, contents.back()));
    report.member_bytes += file.size_bytes;
  }
  for (size_t i = 0; i < contents.size(); ++i)
    members.push_back(
        {std::string(split_member_name(sample.files[i].key)->extension), contents[i]});
  ++report.sample_count;
  return writer.add(sample.key, members);
}

}  // namespace

Result<FileGroups> group_files(const std::vector<ObjectInfo>& files,
                               const std::vector<std::string>& extensions) {
  FileGroups groups;
  std::map<std::string, std::vector<ObjectInfo>, std::less<>> by_key;
  for (const ObjectInfo& file : files) {
    const auto name = split_member_name(file.key);
    if (!name || is_hidden(file.key)) {
      groups.ignored.push_back(file.key);
      continue;
    }
    if (!extensions.empty() && !contains(extensions, to_lower(name->extension))) continue;
    auto& sample = by_key[std::string(name->key)];
    for (const ObjectInfo& other : sample)
      if (extension_of(other) == to_lower(name->extension))
        return Error{Code::kInvalidArgument,
                     fmt::format("'{}' and '{}' would be one and the same member of a sample",
                                 other.key, file.key)};
    sample.push_back(file);
  }
  for (auto& [key, members] : by_key) groups.samples.push_back({key, std::move(members)});
  return groups;
}

Result<PackReport> pack(ObjectStore& source, ObjectStore& target, const PackOptions& options,
                        const StopToken& stop,
                        const std::function<void(const PackProgress&)>& progress) {
  PackReport report;
  YARD_ASSIGN(const auto files, storage::list_all(source, ""));
  YARD_ASSIGN(FileGroups groups, group_files(files, options.extensions));
  report.ignored = std::move(groups.ignored);
  YARD_TRY(apply_policies(options, source, groups.samples, report));
  if (groups.samples.empty())
    return Error{Code::kInvalidArgument, source.url() + ": there is nothing to pack"};

  YARD_ASSIGN(const auto existing, existing_shards(target, options.shards.prefix));
  if (!existing.empty() && !options.replace)
    return Error{Code::kInvalidArgument,
                 fmt::format("{}/{} is already there; choose another --prefix, or --replace",
                             target.url(), existing.front())};
  YARD_ASSIGN(ShardWriter writer, ShardWriter::create(target, options.shards));
  for (const SampleFiles& sample : groups.samples) {
    if (stop.stopped()) return Error{Code::kCancelled, "packing was stopped"};
    YARD_TRY(add_sample(source, sample, writer, report));
    if (progress) progress({groups.samples.size(), report.sample_count});
  }
  YARD_ASSIGN(report.shards, writer.finish());
  YARD_TRY(remove_left_over(target, existing, report.shards));
  return report;
}

}  // namespace yard::shards
