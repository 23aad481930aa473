// yard shards: making, listing, verifying and indexing WebDataset shards.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/nearest_name.h"
#include "base/units.h"
#include "commands.h"
#include "shards/pack.h"
#include "shards/sample_name.h"
#include "shards/shard_reader.h"

namespace yard::app {
namespace {

using shards::ShardIndex;
using shards::ShardReader;

// One shard that the user named, by itself or by its folder.
struct ShardPath {
  std::shared_ptr<storage::ObjectStore> store;
  std::string key;
  std::string url() const { return store->url() + "/" + key; }
};

bool is_shard_key(std::string_view key) {
  return key.ends_with(".tar");
}

Status add_shards_of_folder(const storage::Location& folder, std::vector<ShardPath>& shards) {
  YARD_ASSIGN(const auto objects, storage::list_all(*folder.store, ""));
  const size_t before = shards.size();
  for (const auto& object : objects)
    if (is_shard_key(object.key)) shards.push_back({folder.store, object.key});
  if (shards.size() > before) return Ok{};
  return Error{Code::kNotFound, folder.store->url() + ": there is no .tar file in this folder"};
}

// Files as they are named; folders stand for all their .tar files.
Result<std::vector<ShardPath>> find_shards(const std::vector<std::string>& paths) {
  std::vector<ShardPath> shards;
  for (const std::string& path : paths) {
    if (auto folder = storage::open_directory(path)) {
      YARD_TRY(add_shards_of_folder(*folder, shards));
      continue;
    }
    YARD_ASSIGN(storage::Location file, storage::open_object(path));
    YARD_TRY(file.store->head(file.key));
    shards.push_back({std::move(file.store), std::move(file.key)});
  }
  return shards;
}

// Names need not be UTF-8, JSON must be.
void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

struct PathsOptions {
  std::vector<std::string> paths;
  bool json = false;
};

void add_paths_command(CLI::App& group, Context& context, const std::string& name,
                       const std::string& help,
                       const std::function<Status(const PathsOptions&, const StopToken&)>& run) {
  auto options = std::make_shared<PathsOptions>();
  CLI::App* command = group.add_subcommand(name, help);
  command->add_option("PATH", options->paths, "shards, or folders of shards")->required();
  command->add_flag("--json", options->json, "one JSON object a line");
  command->callback([options, run, &context] {
    context.action = [options, run, &context] { return run(*options, context.stop); };
  });
}

struct PackCommand {
  std::string source;
  std::string target;
  std::string size = "1GiB";
  std::string missing_caption = "fail";
  std::string missing_picture = "fail";
  bool json = false;
  shards::PackOptions options;
};

void print_left_out(const std::vector<std::string>& names, std::string_view what) {
  constexpr size_t kShown = 5;
  if (names.empty()) return;
  std::vector<std::string> shown(names.begin(),
                                 names.begin() + std::ptrdiff_t(std::min(kShown, names.size())));
  fmt::print("left out, {}: {} ({}{})\n", what, names.size(), fmt::join(shown, ", "),
             names.size() > kShown ? ", ..." : "");
}

Json to_json(const shards::PackReport& report) {
  Json list = Json::array();
  for (const auto& shard : report.shards)
    list.push_back({{"key", shard.key},
                    {"size_bytes", shard.size_bytes},
                    {"sample_count", shard.sample_count}});
  return {{"shards", list},
          {"sample_count", report.sample_count},
          {"member_bytes", report.member_bytes},
          {"without_caption", report.without_caption},
          {"without_picture", report.without_picture},
          {"ignored", report.ignored}};
}

Status run_pack(PackCommand command, const Context& context) {
  const auto start = Clock::real().now();
  shards::PackOptions& options = command.options;
  YARD_ASSIGN(options.shards.size_bytes_max, parse_size_bytes(command.size));
  const auto policy = [](const std::string& word) {
    return word == "skip" ? shards::MissingPolicy::kSkip : shards::MissingPolicy::kFail;
  };
  options.missing_caption = policy(command.missing_caption);
  options.missing_picture = policy(command.missing_picture);
  for (std::string& extension : options.extensions) {
    extension = shards::to_lower(extension);
    if (extension.starts_with('.')) extension.erase(0, 1);
  }
  YARD_ASSIGN(const storage::Location source, storage::open_directory(command.source));
  if (command.target.find("://") == command.target.npos) {
    auto made = make_directories(command.target);
    if (!made) return std::move(made).error().while_("making the folder for the shards");
  }
  YARD_ASSIGN(const storage::Location target, storage::open_directory(command.target));

  const bool show_progress = context.stdout_is_terminal && !command.json;
  uint64_t percent_shown = 0;
  const auto progress = [&](const shards::PackProgress& at) {
    const uint64_t percent = at.samples_done * 100 / at.sample_count;
    if (!show_progress || percent == percent_shown) return;
    percent_shown = percent;
    fmt::print("\rpacking: {:3}%", percent);
    std::fflush(stdout);
  };
  auto report = shards::pack(*source.store, *target.store, options, context.stop, progress);
  if (percent_shown > 0) fmt::print("\r");
  if (!report) return std::move(report).error();
  if (command.json) {
    print_json(to_json(*report));
    return Ok{};
  }
  print_left_out(report->without_caption, "no caption");
  print_left_out(report->without_picture, "no picture");
  print_left_out(report->ignored, "no member of a sample");
  fmt::print("{} samples, {} of data, in {} shards in {}, {}\n", report->sample_count,
             format_size_bytes(report->member_bytes), report->shards.size(), target.store->url(),
             format_duration(Clock::real().now() - start));
  return Ok{};
}

void add_pack(CLI::App& group, Context& context) {
  auto command = std::make_shared<PackCommand>();
  CLI::App* app = group.add_subcommand(
      "pack", "files that share a name up to the first dot (7.png, 7.txt) become one sample");
  app->add_option("SRC", command->source, "a folder; its sub-folders are packed too")->required();
  app->add_option("DEST", command->target, "the folder for the shards")->required();
  app->add_option("--size", command->size, "of a shard, at most")->capture_default_str();
  app->add_option("--prefix", command->options.shards.prefix, "shards are PREFIX-000000.tar, ...")
      ->capture_default_str();
  app->add_option("--extensions", command->options.extensions, "take only these, as png,txt")
      ->delimiter(',');
  app->add_option("--missing-caption", command->missing_caption, "of a picture")
      ->check(CLI::IsMember({"fail", "skip"}))
      ->capture_default_str();
  app->add_option("--missing-picture", command->missing_picture, "of a caption")
      ->check(CLI::IsMember({"fail", "skip"}))
      ->capture_default_str();
  app->add_flag("--replace", command->options.replace, "replace shards of the same prefix");
  app->add_flag("--json", command->json, "print the report as JSON");
  app->callback([command, &context] {
    context.action = [command, &context] { return run_pack(*command, context); };
  });
}

Json sample_json(const ShardPath& path, const ShardIndex& index, uint64_t sample) {
  Json members = Json::array();
  for (const auto& member : index.members(sample))
    members.push_back({{"extension", index.extension(member)},
                       {"name", index.member_name(sample, member)},
                       {"offset", member.offset},
                       {"size_bytes", member.size_bytes},
                       {"crc32c", fmt::format("{:08x}", member.crc32c)}});
  return {{"shard", path.key}, {"key", index.key(sample)}, {"members", members}};
}

Status run_ls(const PathsOptions& options, const StopToken& stop) {
  YARD_ASSIGN(const auto paths, find_shards(options.paths));
  for (const ShardPath& path : paths) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_ASSIGN(const ShardReader reader, ShardReader::open(*path.store, path.key));
    const ShardIndex& index = reader.index();
    for (uint64_t sample = 0; sample < index.sample_count(); ++sample) {
      if (options.json) {
        print_json(sample_json(path, index, sample));
        continue;
      }
      std::string members;
      for (const auto& member : index.members(sample))
        members += fmt::format("{}{} {}", members.empty() ? "" : ", ", index.extension(member),
                               member.size_bytes);
      fmt::print("{}/{}\t{}\n", path.key, index.key(sample), members);
    }
  }
  return Ok{};
}

Result<uint64_t> find_sample(const ShardReader& reader, std::string_view key,
                             const std::string& url) {
  const ShardIndex& index = reader.index();
  std::vector<std::string_view> keys;
  for (uint64_t sample = 0; sample < index.sample_count(); ++sample) {
    if (index.key(sample) == key) return sample;
    keys.push_back(index.key(sample));
  }
  const std::string_view nearest = nearest_name(key, keys);
  return Error{Code::kNotFound,
               fmt::format("{}: no sample '{}' among its {}{}", url, key, keys.size(),
                           nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest))};
}

Status run_cat(const std::string& shard_path, const std::string& member_name) {
  const auto name = shards::split_member_name(member_name);
  if (!name)
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}' is no member of a sample: it is KEY.EXTENSION", member_name)};
  YARD_ASSIGN(const storage::Location location, storage::open_object(shard_path));
  YARD_ASSIGN(const ShardReader reader, ShardReader::open(*location.store, location.key));
  YARD_ASSIGN(const uint64_t sample, find_sample(reader, name->key, shard_path));
  const ShardIndex& index = reader.index();
  const auto* member = index.find(sample, shards::to_lower(name->extension));
  if (member == nullptr) {
    std::vector<std::string> names;
    for (const auto& other : index.members(sample))
      names.push_back(index.member_name(sample, other));
    return Error{Code::kNotFound, fmt::format("{}: no member '{}'; the sample has {}", shard_path,
                                              member_name, fmt::join(names, ", "))};
  }
  std::vector<std::byte> buffer;
  YARD_ASSIGN(const auto contents, reader.read(sample, std::span(member, 1), buffer));
  if (std::fwrite(contents[0].data(), 1, contents[0].size(), stdout) != contents[0].size() ||
      std::fflush(stdout) != 0)
    return errno_error("standard output", errno);
  return Ok{};
}

void add_cat(CLI::App& group, Context& context) {
  struct Options {
    std::string shard;
    std::string member;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = group.add_subcommand("cat", "write one member to the standard output");
  command->add_option("SHARD", options->shard)->required();
  command->add_option("KEY.EXTENSION", options->member)->required();
  command->callback([options, &context] {
    context.action = [options] { return run_cat(options->shard, options->member); };
  });
}

struct CheckedShard {
  shards::ScannedShard scanned;
  bool has_index = false;
};

Result<CheckedShard> check_shard(const ShardPath& path) {
  YARD_ASSIGN(shards::ScannedShard scanned, shards::scan_shard(*path.store, path.key));
  CheckedShard checked{std::move(scanned), true};
  const std::string key = shards::index_key(path.key);
  auto bytes = storage::get_all(*path.store, key);
  if (!bytes && bytes.error().code != Code::kNotFound) return std::move(bytes).error();
  checked.has_index = bytes.has_value();
  if (!bytes) return checked;
  const std::string url = path.store->url() + "/" + key;
  YARD_ASSIGN(const ShardIndex index, ShardIndex::decode(*bytes, url));
  if (!index.same_content(checked.scanned.index))
    return Error{Code::kCorrupt,
                 url +
                     ": describes other bytes than the shard has now; 'yard shards index' "
                     "replaces it"};
  return checked;
}

uint64_t member_count_of(const ShardIndex& index) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < index.sample_count(); ++i) count += index.members(i).size();
  return count;
}

void print_checked(const ShardPath& path, const CheckedShard& checked, bool json) {
  const ShardIndex& index = checked.scanned.index;
  if (json) {
    print_json({{"shard", path.url()},
                {"ok", true},
                {"sample_count", index.sample_count()},
                {"member_count", member_count_of(index)},
                {"size_bytes", index.shard_size_bytes()},
                {"link_count", checked.scanned.link_count},
                {"has_index", checked.has_index}});
    return;
  }
  fmt::print("ok   {}: {} samples, {} members, {}{}{}\n", path.url(), index.sample_count(),
             member_count_of(index), format_size_bytes(index.shard_size_bytes()),
             checked.has_index ? "" : ", no index",
             checked.scanned.link_count == 0
                 ? ""
                 : fmt::format(", {} links that no reader follows", checked.scanned.link_count));
}

Status run_check(const PathsOptions& options, const StopToken& stop) {
  YARD_ASSIGN(const auto paths, find_shards(options.paths));
  std::optional<Error> last;
  size_t bad_count = 0;
  for (const ShardPath& path : paths) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    const auto checked = check_shard(path);
    if (checked) {
      print_checked(path, *checked, options.json);
      continue;
    }
    last = checked.error();
    ++bad_count;
    if (options.json)
      print_json({{"shard", path.url()}, {"ok", false}, {"error", last->message}});
    else
      fmt::print("BAD  {}\n", last->message);
  }
  if (!last) return Ok{};
  return Error{last->code, fmt::format("{} of {} shards are bad", bad_count, paths.size())};
}

Status run_index(const PathsOptions& options, const StopToken& stop) {
  YARD_ASSIGN(const auto paths, find_shards(options.paths));
  for (const ShardPath& path : paths) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_ASSIGN(const auto scanned, shards::scan_shard(*path.store, path.key));
    const std::string key = shards::index_key(path.key);
    YARD_TRY(storage::put_text(*path.store, key, scanned.index.encode()));
    if (options.json)
      print_json({{"index", path.store->url() + "/" + key},
                  {"sample_count", scanned.index.sample_count()}});
    else
      fmt::print("{}/{}: {} samples\n", path.store->url(), key, scanned.index.sample_count());
  }
  return Ok{};
}

struct ExtensionStats {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t bytes_min = UINT64_MAX;
  uint64_t bytes_max = 0;
};

struct Stats {
  uint64_t shard_count = 0;
  uint64_t shard_bytes = 0;
  uint64_t sample_count = 0;
  std::map<std::string, ExtensionStats> extensions;
};

void add_to(Stats& stats, const ShardIndex& index) {
  ++stats.shard_count;
  stats.shard_bytes += index.shard_size_bytes();
  stats.sample_count += index.sample_count();
  for (uint64_t sample = 0; sample < index.sample_count(); ++sample) {
    for (const auto& member : index.members(sample)) {
      ExtensionStats& of = stats.extensions[std::string(index.extension(member))];
      ++of.count;
      of.bytes += member.size_bytes;
      of.bytes_min = std::min(of.bytes_min, member.size_bytes);
      of.bytes_max = std::max(of.bytes_max, member.size_bytes);
    }
  }
}

void print_stats(const Stats& stats, bool json) {
  if (json) {
    Json extensions = Json::object();
    for (const auto& [name, of] : stats.extensions)
      extensions[name] = {{"count", of.count},
                          {"bytes", of.bytes},
                          {"bytes_min", of.bytes_min},
                          {"bytes_max", of.bytes_max}};
    print_json({{"shard_count", stats.shard_count},
                {"shard_bytes", stats.shard_bytes},
                {"sample_count", stats.sample_count},
                {"extensions", extensions}});
    return;
  }
  fmt::print("{} shards, {}, {} samples\n", stats.shard_count, format_size_bytes(stats.shard_bytes),
             stats.sample_count);
  for (const auto& [name, of] : stats.extensions)
    fmt::print("  {:12} {:>10} members, {:>10}, each {} to {}\n", name, of.count,
               format_size_bytes(of.bytes), format_size_bytes(of.bytes_min),
               format_size_bytes(of.bytes_max));
}

Status run_stats(const PathsOptions& options, const StopToken& stop) {
  YARD_ASSIGN(const auto paths, find_shards(options.paths));
  Stats stats;
  for (const ShardPath& path : paths) {
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    YARD_ASSIGN(const auto opened, shards::open_index(*path.store, path.key));
    add_to(stats, opened.index);
  }
  print_stats(stats, options.json);
  return Ok{};
}

}  // namespace

void add_shards_commands(CLI::App& app, Context& context) {
  CLI::App* group = app.add_subcommand("shards", "make, list, verify and index tar shards");
  group->require_subcommand(1);
  add_pack(*group, context);
  add_paths_command(*group, context, "ls", "list samples and the sizes of their members", run_ls);
  add_cat(*group, context);
  add_paths_command(*group, context, "check", "read everything: form, checksums, index", run_check);
  add_paths_command(*group, context, "index", "make or replace the index beside each shard",
                    run_index);
  add_paths_command(*group, context, "stats", "count shards, samples and bytes", run_stats);
}

}  // namespace yard::app
