#include "channels/checkpoint_sync.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "base/stop_token.h"
#include "storage/directory_store.h"
#include "transfer/copier.h"

namespace yard::channels {
namespace {

using Steady = std::chrono::steady_clock;
using storage::ObjectInfo;

constexpr std::array<std::string_view, 9> kTemporarySuffixes = {
    ".tmp", ".temp", ".part", ".partial", ".swp", ".incomplete", ".yard-part", "~", ".lock"};

// A read lease is given only while nobody has the file open for writing. It is given back at once,
// so that no writer waits for us; the signal that would tell us of one is made harmless.
bool is_open_for_writing(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return true;  // gone meanwhile: not whole
  ::fcntl(fd.get(), F_SETSIG, SIGURG);
  if (::fcntl(fd.get(), F_SETLEASE, F_RDLCK) == 0) {
    ::fcntl(fd.get(), F_SETLEASE, F_UNLCK);
    return false;
  }
  // EAGAIN says there is a writer. File systems without leases say EINVAL: then only the pinned
  // version of the copy protects.
  return errno == EAGAIN;
}

}  // namespace

bool is_temporary_name(std::string_view path) {
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    const auto ends_so = [&](std::string_view suffix) { return part.ends_with(suffix); };
    if (part.starts_with("tmp-") || part == storage::kStagingFolder ||
        std::ranges::any_of(kTemporarySuffixes, ends_so))
      return true;
  }
  return false;
}

struct CheckpointSync::Impl {
  CheckpointOptions options;
  std::shared_ptr<storage::DirectoryStore> local;
  storage::Location target;
  StopSource stop;
  std::thread thread;
  std::map<std::string, std::string> uploaded;            // etag by key
  std::map<std::string, Steady::time_point> waits_since;  // whole, not yet uploaded
  std::atomic<uint64_t> uploaded_bytes = 0;
  bool is_behind = false;

  std::string target_key(const std::string& key) const;
  Result<std::vector<ObjectInfo>> pending(bool is_last) const;
  Status round(bool is_last);
  Status upload(const std::vector<ObjectInfo>& files, const StopToken& token);
  void note_waiting(const std::vector<ObjectInfo>& files);
  void run();
};

std::string CheckpointSync::Impl::target_key(const std::string& key) const {
  const bool has_slash = target.key.empty() || target.key.ends_with('/');
  return target.key + (has_slash ? "" : "/") + key;
}

// Oldest first.
Result<std::vector<ObjectInfo>> CheckpointSync::Impl::pending(bool is_last) const {
  YARD_ASSIGN(auto files, local->list_all("", [](const std::string&, const std::string&) {}));
  std::erase_if(files, [&](const ObjectInfo& info) {
    const auto known = uploaded.find(info.key);
    return is_temporary_name(info.key) || (known != uploaded.end() && known->second == info.etag) ||
           (!is_last && is_open_for_writing(local->path_of(info.key)));
  });
  std::ranges::stable_sort(files, {}, &ObjectInfo::modified);
  return files;
}

void CheckpointSync::Impl::note_waiting(const std::vector<ObjectInfo>& files) {
  const auto now = Steady::now();
  std::map<std::string, Steady::time_point> waiting;
  bool behind = false;
  for (const ObjectInfo& info : files) {
    if (const auto known = uploaded.find(info.key);
        known != uploaded.end() && known->second == info.etag)
      continue;
    const auto since = waits_since.find(info.key);
    waiting[info.key] = since == waits_since.end() ? now : since->second;
    behind = behind || now - waiting[info.key] > options.behind_after;
  }
  waits_since = std::move(waiting);
  if (behind != is_behind && options.on_behind) options.on_behind(behind);
  is_behind = behind;
}

Status CheckpointSync::Impl::upload(const std::vector<ObjectInfo>& files, const StopToken& token) {
  // One after the other: a file is never in the store before those written before it.
  for (const ObjectInfo& info : files) {
    if (token.stopped()) break;
    transfer::CopierOptions copier_options;
    copier_options.transfer.stop = token;
    transfer::Copier copier(copier_options, {});
    copier.add({.source = local,
                .info = info,
                .target_path = {},
                .target = target.store,
                .target_key = target_key(info.key)});
    YARD_TRY(copier.finish());
    uploaded[info.key] = info.etag;
    uploaded_bytes += info.size_bytes;
  }
  return Ok{};
}

Status CheckpointSync::Impl::round(bool is_last) {
  YARD_ASSIGN(const auto files, pending(is_last));
  const Status done = upload(files, is_last ? StopToken() : stop.token());
  note_waiting(files);
  return done;
}

void CheckpointSync::Impl::run() {
  while (!stop.token().wait_for(options.period))
    if (const Status done = round(false); !done && done.error().code != Code::kCancelled)
      log_warning("checkpoints, to be tried again: {}", done.error().message);
}

CheckpointSync::CheckpointSync(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CheckpointSync::~CheckpointSync() {
  impl_->stop.request();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<CheckpointSync>> CheckpointSync::restore(CheckpointOptions options,
                                                                ChannelProgress& progress) {
  YARD_TRY(download_prefix(options.url, options.folder,
                           {.open = options.open, .data_dir = {}, .stop = options.stop}, progress));
  YARD_ASSIGN(auto sync, of_new(std::move(options)));
  YARD_ASSIGN(const auto files,
              sync->impl_->local->list_all("", [](const std::string&, const std::string&) {}));
  for (const ObjectInfo& info : files) sync->impl_->uploaded[info.key] = info.etag;
  return sync;
}

Result<std::unique_ptr<CheckpointSync>> CheckpointSync::of_new(CheckpointOptions options) {
  auto impl = std::make_unique<Impl>();
  YARD_ASSIGN(impl->target, options.open(options.url));
  YARD_ASSIGN(impl->local, storage::DirectoryStore::open(options.folder));
  impl->options = std::move(options);
  return std::unique_ptr<CheckpointSync>(new CheckpointSync(std::move(impl)));
}

void CheckpointSync::start() {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Status CheckpointSync::finish() {
  impl_->stop.request();
  if (impl_->thread.joinable()) impl_->thread.join();
  return impl_->round(true);
}

uint64_t CheckpointSync::uploaded_bytes() const {
  return impl_->uploaded_bytes;
}

}  // namespace yard::channels
