#include "shards/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <unordered_map>

#include "shards/pack_manifest.h"
#include "shards/sample_name.h"
#include "shards/shard_layout_internal.h"
#include "storage/transfer_pool.h"

namespace yard::shards {
namespace {

using storage::ObjectInfo;
using storage::ObjectStore;

// Sizes of a manifest's files are asked for so many samples at once.
constexpr size_t kSamplesPerTask = 16;

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

Status apply_policies(const PackOptions& options, const std::string& url,
                      std::vector<SampleFiles>& samples, PackReport& report) {
  const auto has_picture = [&](const SampleFiles& s) {
    return has_any(s, options.picture_extensions);
  };
  const auto has_caption = [&](const SampleFiles& s) {
    return has_any(s, {options.caption_extension});
  };
  if (std::ranges::none_of(samples, has_picture)) return Ok{};
  const auto file = [&](const SampleFiles& s) { return url + s.files.front().key; };
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
            "{} has no caption: there is no {}{}.{}; --missing-caption skip leaves "
            "such pictures out",
            file(s), url, s.key, options.caption_extension);
      },
      report.without_caption);
}

// Samples that no shard can hold, told or refused.
Status drop_unnameable(const PackOptions& options, const std::string& url,
                       std::vector<SampleSource>& samples) {
  if (!options.on_bad) return Ok{};  // plan_shards() refuses them
  std::vector<SampleSource> kept;
  for (SampleSource& sample : samples) {
    Status valid = Ok{};
    for (const MemberSource& member : sample.members)
      if (valid) valid = check_member(sample.key, member.extension);
    if (valid) {
      kept.push_back(std::move(sample));
      continue;
    }
    YARD_TRY(options.on_bad({.shard = url, .key = sample.key, .reason = valid.error().message}));
  }
  samples = std::move(kept);
  return Ok{};
}

Status write_samples(std::vector<SampleSource> samples, ObjectStore& target,
                     const PackOptions& options, const StopToken& stop,
                     const std::function<void(const PackProgress&)>& progress, PackReport& report) {
  const auto samples_done = [&](uint64_t done) {
    if (progress) progress({samples.size(), done});
  };
  YARD_ASSIGN(ShardSet set, write_shard_set(target, samples,
                                            {.shards = options.shards,
                                             .memory_bytes = options.memory_bytes,
                                             .replace = options.replace},
                                            stop, samples_done));
  report.shards = std::move(set.shards);
  report.resumed_count = set.resumed_count;
  report.sample_count = samples.size();
  for (const SampleSource& sample : samples)
    for (const MemberSource& member : sample.members) report.member_bytes += member.size_bytes;
  return Ok{};
}

// By key, each key once; the files of one keep their order.
void gather(std::vector<SampleFiles>& samples) {
  if (!std::ranges::is_sorted(samples, {}, &SampleFiles::key))
    std::ranges::stable_sort(samples, {}, &SampleFiles::key);
  size_t count = 0;
  for (SampleFiles& sample : samples) {
    if (count > 0 && samples[count - 1].key == sample.key) {
      std::ranges::move(sample.files, std::back_inserter(samples[count - 1].files));
    } else {
      if (&samples[count] != &sample) samples[count] = std::move(sample);
      ++count;
    }
  }
  samples.resize(count);
}

Status check_extensions(const SampleFiles& sample) {
  for (size_t i = 1; i < sample.files.size(); ++i)
    for (size_t other = 0; other < i; ++other)
      if (extension_of(sample.files[other]) == extension_of(sample.files[i]))
        return Error{Code::kInvalidArgument,
                     fmt::format("'{}' and '{}' would be one and the same member of a sample",
                                 sample.files[other].key, sample.files[i].key)};
  return Ok{};
}

// A manifest on its way to samples.
class ManifestReader {
 public:
  ManifestReader(const PackManifest& manifest, const PackOptions& options, const StopToken& stop)
      : manifest_(manifest), options_(options), stop_(stop) {}

  Result<std::vector<SampleSource>> read() {
    YARD_TRY(parse());
    YARD_TRY(look_up());
    std::vector<SampleSource> samples;
    for (Line& line : lines_) {
      if (!line.error) {
        samples.push_back(std::move(line.sample));
        continue;
      }
      const std::string reason = fmt::format("{}: {}", what(line.number), line.error->message);
      if (!options_.on_bad) return Error{line.error->code, reason};
      YARD_TRY(options_.on_bad({.shard = manifest_.url,
                                .key = line.sample.key,
                                .offset = line.number,
                                .reason = reason}));
    }
    return samples;
  }

 private:
  struct Line {
    uint64_t number;
    SampleSource sample;
    std::optional<Error> error;
  };

  std::string what(uint64_t line) const { return fmt::format("{}:{}", manifest_.url, line); }

  Status parse() {
    std::string_view rest = manifest_.text;
    std::unordered_map<std::string, uint64_t> lines_by_key;
    for (uint64_t number = 1; !rest.empty(); ++number) {
      const std::string_view text = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), text.size() + 1));
      if (text.find_first_not_of(" \t\r") == text.npos) continue;
      YARD_ASSIGN(const ManifestSample parsed, parse_manifest_line(text, what(number)));
      const auto [it, is_new] = lines_by_key.emplace(parsed.key, number);
      if (!is_new)
        return Error{Code::kInvalidArgument, fmt::format("{}: the key '{}' is that of line {} too",
                                                         what(number), parsed.key, it->second)};
      YARD_TRY(add(number, parsed));
    }
    return Ok{};
  }

  bool is_taken(const std::string& extension) const {
    return options_.extensions.empty() || contains(options_.extensions, to_lower(extension));
  }

  Status add(uint64_t number, const ManifestSample& parsed) {
    Line line{number, {parsed.key, {}}, std::nullopt};
    for (const auto& [extension, url] : parsed.files) {
      if (!is_taken(extension)) continue;
      YARD_ASSIGN(storage::Location file, manifest_.open(url));
      line.sample.members.push_back({.extension = extension,
                                     .object = std::make_shared<SourceObject>(SourceObject{
                                         std::move(file.store), std::move(file.key), {}})});
    }
    for (const auto& [extension, text] : parsed.texts)
      if (is_taken(extension))
        line.sample.members.push_back(
            {.extension = extension, .size_bytes = text.size(), .text = text});
    std::ranges::sort(line.sample.members, {}, &MemberSource::extension);
    for (const MemberSource& member : line.sample.members)
      if (auto valid = check_member(parsed.key, member.extension); !valid)
        line.error = valid.error();
    if (!line.sample.members.empty()) lines_.push_back(std::move(line));
    return Ok{};
  }

  // Sizes and versions of all files.
  Status look_up() {
    storage::TransferPool pool({.stop = stop_});
    for (size_t begin = 0; begin < lines_.size(); begin += kSamplesPerTask)
      pool.push(0, [this, begin]() -> Result<uint64_t> {
        const size_t end = std::min(begin + kSamplesPerTask, lines_.size());
        for (size_t i = begin; i < end; ++i)
          if (auto found = look_up(lines_[i]); !found && !lines_[i].error)
            lines_[i].error = found.error();
        return uint64_t{0};
      });
    pool.wait_until_idle();
    if (stop_.stopped()) return Error{Code::kCancelled, "packing was stopped"};
    return Ok{};
  }

  static Status look_up(Line& line) {
    for (MemberSource& member : line.sample.members) {
      if (!member.object) continue;
      YARD_ASSIGN(const ObjectInfo info, member.object->store->head(member.object->key));
      member.size_bytes = info.size_bytes;
      member.object = std::make_shared<SourceObject>(
          SourceObject{member.object->store, member.object->key, info.etag});
    }
    return Ok{};
  }

  const PackManifest& manifest_;
  const PackOptions& options_;
  const StopToken& stop_;
  std::vector<Line> lines_;
};

}  // namespace

Result<FileGroups> group_files(std::vector<ObjectInfo> files,
                               const std::vector<std::string>& extensions) {
  FileGroups groups;
  std::vector<SampleFiles>& samples = groups.samples;
  for (ObjectInfo& file : files) {
    const auto name = split_member_name(file.key);
    if (!name || is_hidden(file.key)) {
      groups.ignored.push_back(std::move(file.key));
      continue;
    }
    if (!extensions.empty() && !contains(extensions, to_lower(name->extension))) continue;
    // In the order of their names the files of a sample follow each other.
    if (samples.empty() || samples.back().key != name->key)
      samples.push_back({std::string(name->key), {}});
    samples.back().files.push_back(std::move(file));
  }
  gather(samples);
  for (const SampleFiles& sample : samples) YARD_TRY(check_extensions(sample));
  return groups;
}

Result<PackReport> pack(const PackTree& source, ObjectStore& target, const PackOptions& options,
                        const StopToken& stop,
                        const std::function<void(const PackProgress&)>& progress) {
  PackReport report;
  const std::string url = source.store->url() + "/" + source.prefix;
  YARD_ASSIGN(auto files, storage::list_all(*source.store, source.prefix));
  for (ObjectInfo& file : files) file.key.erase(0, source.prefix.size());
  YARD_ASSIGN(FileGroups groups, group_files(std::move(files), options.extensions));
  report.ignored = std::move(groups.ignored);
  YARD_TRY(apply_policies(options, url, groups.samples, report));
  std::vector<SampleSource> samples;
  samples.reserve(groups.samples.size());
  for (SampleFiles& group : groups.samples) {
    SampleSource& sample = samples.emplace_back(SampleSource{std::move(group.key), {}});
    sample.members.reserve(group.files.size());
    for (ObjectInfo& file : group.files)
      sample.members.push_back({.extension = std::string(split_member_name(file.key)->extension),
                                .object = std::make_shared<SourceObject>(SourceObject{
                                    source.store, source.prefix + file.key, std::move(file.etag)}),
                                .size_bytes = file.size_bytes});
  }
  YARD_TRY(drop_unnameable(options, url, samples));
  if (samples.empty())
    return Error{Code::kInvalidArgument, source.store->url() + ": there is nothing to pack"};
  YARD_TRY(write_samples(std::move(samples), target, options, stop, progress, report));
  return report;
}

Result<PackReport> pack(const PackManifest& source, ObjectStore& target, const PackOptions& options,
                        const StopToken& stop,
                        const std::function<void(const PackProgress&)>& progress) {
  YARD_ASSIGN(std::vector<SampleSource> samples, ManifestReader(source, options, stop).read());
  if (samples.empty())
    return Error{Code::kInvalidArgument, source.url + ": there is nothing to pack"};
  PackReport report;
  YARD_TRY(write_samples(std::move(samples), target, options, stop, progress, report));
  return report;
}

}  // namespace yard::shards
