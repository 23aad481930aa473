// yard shards pack: files into shards.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/units.h"
#include "shards/pack.h"
#include "shards/sample_name.h"
#include "shards_common.h"
#include "storage/directory_store.h"

namespace yard::app {
namespace {

constexpr uint64_t kManifestBytesMax = uint64_t{8} << 30;

struct PackCommand {
  StoreOptions store;
  BadOptions bad;
  std::string source;
  std::string target;
  std::string size = "1GiB";
  std::string missing_caption = "fail";
  std::string missing_picture = "fail";
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

Json to_json(const shards::PackReport& report, uint64_t bad_count) {
  Json list = Json::array();
  for (const auto& shard : report.shards)
    list.push_back({{"key", shard.key},
                    {"size_bytes", shard.size_bytes},
                    {"sample_count", shard.sample_count}});
  return {{"shards", list},
          {"sample_count", report.sample_count},
          {"member_bytes", report.member_bytes},
          {"resumed_count", report.resumed_count},
          {"bad_count", bad_count},
          {"without_caption", report.without_caption},
          {"without_picture", report.without_picture},
          {"ignored", report.ignored}};
}

// Paths of a manifest start from its folder. One store for all of this machine's files: a manifest
// may name a million folders.
class ManifestFiles {
 public:
  ManifestFiles(storage::Opener& opener, const Place& manifest)
      : opener_(opener), is_s3_(manifest.is_s3), store_(manifest.store) {
    folder_ = manifest.key.substr(0, manifest.key.rfind('/') + 1);
    if (!is_s3_) folder_ = manifest.root_path.empty() ? "." : manifest.root_path;
  }

  Result<storage::Location> open(const std::string& url) {
    if (storage::is_s3_url(url)) return opener_.open(url);
    const bool is_relative = url.find("://") == url.npos && !url.starts_with('/');
    if (is_s3_ && is_relative) return storage::Location{store_, folder_ + url};
    YARD_ASSIGN(const std::string path, storage::path_of_url(url));
    if (!root_) {
      YARD_ASSIGN(root_, storage::DirectoryStore::open("/"));
    }
    std::error_code failed;
    const auto whole = std::filesystem::absolute(std::filesystem::path(folder_) / path, failed);
    if (failed) return errno_error(url, failed.value());
    return storage::Location{root_, whole.lexically_normal().string().substr(1)};
  }

 private:
  storage::Opener& opener_;
  const bool is_s3_;
  const std::shared_ptr<storage::ObjectStore> store_;
  std::string folder_;
  std::shared_ptr<storage::ObjectStore> root_;
};

bool is_manifest(const Place& place) {
  return place.key.ends_with(".jsonl") || place.key.ends_with(".ndjson");
}

Result<shards::PackReport> pack_source(storage::Opener& opener, const Place& source,
                                       storage::ObjectStore& target,
                                       const shards::PackOptions& options, const StopToken& stop,
                                       PercentLine& line) {
  const auto progress = [&](const shards::PackProgress& at) {
    line.show(at.samples_done, at.sample_count);
  };
  if (is_manifest(source)) {
    YARD_ASSIGN(std::string text, storage::get_all(*source.store, source.key, kManifestBytesMax));
    ManifestFiles files(opener, source);
    return shards::pack(shards::PackManifest{source.url, std::move(text),
                                             [&](const auto& url) { return files.open(url); }},
                        target, options, stop, progress);
  }
  if (!source.is_s3 && !source.key.empty()) {
    YARD_TRY(source.store->head(source.key));  // kNotFound names it
    return Error{Code::kInvalidArgument,
                 source.url + ": is a file; SRC is a folder, or a manifest that ends in .jsonl"};
  }
  return shards::pack(shards::PackTree{source.store, as_folder(source.key)}, target, options, stop,
                      progress);
}

Status run_pack(PackCommand command, const Context& context) {
  const auto start = Clock::real().now();
  shards::PackOptions& options = command.options;
  YARD_ASSIGN(options.shards.size_bytes_max, parse_size_bytes(command.size));
  YARD_ASSIGN(const uint64_t memory_bytes, memory_bytes_of(command.store));
  options.memory_bytes = memory_bytes / 2;
  const auto policy = [](const std::string& word) {
    return word == "skip" ? shards::MissingPolicy::kSkip : shards::MissingPolicy::kFail;
  };
  options.missing_caption = policy(command.missing_caption);
  options.missing_picture = policy(command.missing_picture);
  for (std::string& extension : options.extensions) {
    extension = shards::to_lower(extension);
    if (extension.starts_with('.')) extension.erase(0, 1);
  }
  storage::Opener opener(s3_options(command.store, context, memory_bytes / 2));
  YARD_ASSIGN(const Place source, open_place(opener, command.source));
  YARD_ASSIGN(const TargetFolder target, open_target_folder(opener, command.target));
  YARD_ASSIGN(const auto bad, BadSamples::open(command.bad));
  options.on_bad = bad->sink();
  options.shards.prefix = target.prefix + options.shards.prefix;

  Result<shards::PackReport> report = Error{Code::kInternal, "not run"};
  {
    PercentLine line("packing", context.stdout_is_terminal && !command.store.json);
    report = pack_source(opener, source, *target.store, options, context.stop, line);
  }
  if (!report) return std::move(report).error();
  YARD_TRY(bad->finish());
  if (command.store.json) {
    print_json_line(to_json(*report, bad->count()));
    return Ok{};
  }
  print_left_out(report->without_caption, "no caption");
  print_left_out(report->without_picture, "no picture");
  print_left_out(report->ignored, "no member of a sample");
  if (report->resumed_count > 0)
    fmt::print("{} shards were there from the run before\n", report->resumed_count);
  fmt::print("{} samples, {} of data, in {} shards in {}/{}, {}\n", report->sample_count,
             format_size_bytes(report->member_bytes), report->shards.size(), target.store->url(),
             target.prefix, format_duration(Clock::real().now() - start));
  return Ok{};
}

}  // namespace

void add_shards_pack_command(CLI::App& group, Context& context) {
  auto command = std::make_shared<PackCommand>();
  CLI::App* app = group.add_subcommand(
      "pack", "files that share a name up to the first dot (7.png, 7.txt) become one sample");
  app->add_option("SRC", command->source,
                  "a folder, its sub-folders are packed too; or a manifest, FILE.jsonl")
      ->required();
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
  add_bad_options(*app, command->bad);
  add_store_options(
      *app, command->store, true,
      "  yard shards pack photos shards --size 2GiB\n"
      "  yard shards pack s3://raw/photos s3://data/train --prefix train\n"
      "  yard shards pack list.jsonl shards --quarantine missing.jsonl\n"
      "A line of a manifest: {\"key\": \"cats/7\", \"files\": {\"jpg\": \"raw/7.jpg\"}, \"text\": "
      "{\"txt\": \"a cat\"}, \"json\": {\"width\": 512}}; paths start from its folder.\n"
      "Stopped by Ctrl-C, whole shards stay and the same command goes on behind them.\n");
  app->callback([command, &context] {
    context.action = [command, &context] { return run_pack(*command, context); };
  });
}

}  // namespace yard::app
