#include "shards_common.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/file.h"
#include "base/log.h"

namespace yard::app {
namespace {

constexpr int kRemoteShardsAtOnce = 8;
constexpr uint64_t kBadShown = 5;

bool is_shard_key(std::string_view key) {
  return key.ends_with(".tar") || key.ends_with(".tar.gz") || key.ends_with(".tgz") ||
         key.ends_with(".tar.zst");
}

Status add_shards_of_folder(const Place& place, const StopToken& stop,
                            std::vector<shards::ShardSource>& shards) {
  const size_t before = shards.size();
  YARD_TRY(visit_folder(place, stop, [&](storage::ObjectInfo info) -> Status {
    if (is_shard_key(info.key)) shards.push_back({place.store, std::move(info.key)});
    return Ok{};
  }));
  if (shards.size() > before) return Ok{};
  return Error{Code::kNotFound, place.url + ": there is no .tar file in this folder"};
}

}  // namespace

Result<std::vector<shards::ShardSource>> find_shards(storage::Opener& opener,
                                                     const std::vector<std::string>& urls,
                                                     const StopToken& stop) {
  std::vector<shards::ShardSource> shards;
  for (const std::string& url : urls) {
    YARD_ASSIGN(const Place place, open_place(opener, url));
    const bool may_be_shard = !place.key.empty() && !place.key.ends_with('/');
    const auto found = may_be_shard ? place.store->head(place.key)
                                    : Result<storage::ObjectInfo>(Error{Code::kNotFound, ""});
    if (found) {
      shards.push_back({place.store, place.key});
      continue;
    }
    if (found.error().code != Code::kNotFound || (may_be_shard && !place.is_s3))
      return found.error();
    YARD_TRY(add_shards_of_folder(place, stop, shards));
  }
  return shards;
}

Result<TargetFolder> open_target_folder(storage::Opener& opener, const std::string& url) {
  if (!storage::is_s3_url(url)) {
    YARD_ASSIGN(const std::string path, storage::path_of_url(url));
    auto made = make_directories(path);
    if (!made) return std::move(made).error().while_("making the folder for the shards");
  }
  YARD_ASSIGN(Place place, open_place(opener, url));
  return TargetFolder{std::move(place.store), as_folder(place.key)};
}

void add_bad_options(CLI::App& command, BadOptions& options) {
  command
      .add_option("--on-bad", options.policy,
                  "a bad sample ends the work, is left out and counted, or is noted in a file too")
      ->check(CLI::IsMember({"fail", "skip", "quarantine"}))
      ->capture_default_str();
  command.add_option("--quarantine", options.path,
                     "that file, a JSON line a sample; implies --on-bad quarantine");
}

Result<std::unique_ptr<BadSamples>> BadSamples::open(const BadOptions& options) {
  if (options.policy == "quarantine" && options.path.empty())
    return Error{Code::kInvalidArgument, "--on-bad quarantine needs a file: --quarantine FILE"};
  if (options.policy == "skip" && !options.path.empty())
    return Error{Code::kInvalidArgument, "--quarantine FILE is not --on-bad skip: which is meant?"};
  std::unique_ptr<BadSamples> bad(new BadSamples(options));
  if (options.path.empty()) return bad;
  bad->file_ = std::fopen(options.path.c_str(), "we");
  if (bad->file_ == nullptr) return errno_error(options.path, errno);
  return bad;
}

BadSamples::~BadSamples() {
  if (file_ != nullptr) std::fclose(file_);
}

shards::BadSampleSink BadSamples::sink() {
  if (options_.policy == "fail" && options_.path.empty()) return nullptr;
  return [this](const shards::BadSample& sample) { return note(sample); };
}

uint64_t BadSamples::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

Status BadSamples::note(const shards::BadSample& sample) {
  const std::lock_guard lock(mutex_);
  if (++count_ <= kBadShown) log_warning("left out: {}", sample.reason);
  if (file_ == nullptr) return Ok{};
  const std::string line = shards::quarantine_line(sample);
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size())
    return errno_error(options_.path, errno);
  return Ok{};
}

Status BadSamples::finish() {
  const std::lock_guard lock(mutex_);
  if (count_ > 0)
    fmt::print(stderr, "left out: {} bad {}{}\n", count_, count_ == 1 ? "sample" : "samples",
               options_.path.empty() ? "" : ", noted in " + options_.path);
  if (file_ == nullptr) return Ok{};
  if (std::fclose(std::exchange(file_, nullptr)) != 0) return errno_error(options_.path, errno);
  return Ok{};
}

PercentLine::~PercentLine() {
  if (percent_) fmt::print("\r");
}

void PercentLine::show(uint64_t done, uint64_t total) {
  const uint64_t percent = done * 100 / std::max<uint64_t>(total, 1);
  if (!is_shown_ || percent_ == percent) return;
  percent_ = percent;
  fmt::print("\r{}: {:3}%", what_, percent);
  std::fflush(stdout);
}

int shards_at_once(const std::vector<shards::ShardSource>& shards) {
  const bool is_remote = std::ranges::any_of(
      shards, [](const shards::ShardSource& shard) { return shard.store->speed().is_remote; });
  if (is_remote) return kRemoteShardsAtOnce;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace yard::app
