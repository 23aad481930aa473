#include "mount/mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <poll.h>
#include <array>
#include <filesystem>

#include "base/log.h"
#include "base/units.h"
#include "mount/fuse_files_internal.h"
#include "mount/memory.h"
#include "mount/mount_point.h"
#include "telemetry/metric_names.h"

namespace yard::mount {
namespace {

constexpr uint64_t kMemoryBytesMin = 32 << 20;
constexpr int kServerThreads = 2;
constexpr int kReadAheadKib = 1024;

uint64_t memory_bytes_of(const MountOptions& options) {
  return options.memory_bytes == 0 ? default_budget_bytes() : options.memory_bytes;
}

std::string url_of(const storage::ObjectStore& store, const MountOptions& options) {
  return fmt::format("{}/{}", store.url(), options.prefix);
}

Status check(const MountOptions& options) {
  if (!options.prefix.empty() && !options.prefix.ends_with('/'))
    return Error{Code::kInvalidArgument, options.prefix + ": a mount's prefix ends with '/'"};
  if (memory_bytes_of(options) < kMemoryBytesMin)
    return Error{Code::kInvalidArgument, fmt::format("{} of memory: a mount needs {}",
                                                     format_size_bytes(options.memory_bytes),
                                                     format_size_bytes(kMemoryBytesMin))};
  return Ok{};
}

// The kernel asks for 128 KiB at a time unless it is told otherwise, which only root may do.
void raise_kernel_read_ahead(const std::string& mount_point) {
  struct stat info = {};
  if (::stat(mount_point.c_str(), &info) != 0) return;
  const std::string path =
      fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", ::major(info.st_dev), ::minor(info.st_dev));
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string text = std::to_string(kReadAheadKib);
  if (file.valid()) static_cast<void>(::write(file.get(), text.data(), text.size()));
}

// True when one of them was asked to stop.
bool wait_for_either(const StopToken& a, const StopToken& b, std::chrono::milliseconds timeout) {
  std::array<pollfd, 2> items{{{a.fd(), POLLIN, 0}, {b.fd(), POLLIN, 0}}};
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!a.stopped() && !b.stopped()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    static_cast<void>(::poll(items.data(), items.size(), static_cast<int>(left.count()) + 1));
  }
  return true;
}

}  // namespace

// In the order in which they use each other; what comes later goes first.
struct Mount::Impl {
  Impl(std::shared_ptr<storage::ObjectStore> opened, MountOptions given, Clock& clock_)
      : store(std::move(opened)), options(std::move(given)), clock(clock_) {}

  Status build();
  Status check_is_no_object() const;
  Status attach(const std::string& mount_point);
  Status stop(const StopToken& hurry);

  const std::shared_ptr<storage::ObjectStore> store;
  const MountOptions options;
  Clock& clock;
  CounterRegistry counters;
  StopSource stop_source;
  std::string mount_point;  // without links
  std::optional<KeyShare> share;
  std::optional<storage::StoreWait> wait;
  std::optional<Memory> memory;
  std::unique_ptr<DiskCache> cache;
  std::optional<Listing> listing;
  std::optional<Inodes> inodes;
  std::optional<FetchQueue> queue;
  std::optional<Content> content;
  std::optional<FuseFiles> files;
  std::unique_ptr<FuseServer> server;
  bool is_empty = false;
  bool is_attached = false;
  std::mutex stop_mutex;
  bool is_stopped = false;
};

Status Mount::Impl::build() {
  Listing probe(*store, nullptr, nullptr, {}, counters, clock);
  YARD_ASSIGN(const auto first_page, probe.page(options.prefix, nullptr));
  is_empty = first_page->entries.empty();
  if (is_empty) YARD_TRY(check_is_no_object());
  if (options.share) {
    YARD_ASSIGN(share, KeyShare::take(*store, options.prefix, *options.share, options.stop));
    log_info("{}: this share has {} objects", url_of(*store, options), share->object_count());
  }
  if (!options.cache_folder.empty()) {
    YARD_ASSIGN(cache, DiskCache::open({options.cache_folder, options.cache_bytes_max},
                                       store->url(), counters));
  }
  memory.emplace(memory_bytes_of(options));
  wait.emplace(options.store_wait_max, counters.counter(metric::kMountStoreRetries),
               stop_source.token(), clock);
  listing.emplace(*store, &*wait, share ? &*share : nullptr,
                  ListingOptions{.ttl = options.metadata_ttl}, counters, clock);
  inodes.emplace(options.prefix, clock.wall_now());
  queue.emplace();
  content.emplace(*store, *wait, *memory, *queue, cache.get(), counters,
                  ContentOptions{.on_changed = [this](const auto& v) { files->on_changed(v); }},
                  stop_source.token(), clock);
  files.emplace(*listing, *inodes, *content, cache.get(), *queue, counters,
                FuseFilesOptions{.inode_count_max = options.inode_count_max,
                                 .walk_bytes_max = std::min<uint64_t>(memory->budget_bytes() / 8,
                                                                      uint64_t{32} << 20)},
                clock);
  return Ok{};
}

Status Mount::Impl::check_is_no_object() const {
  if (options.prefix.empty()) return Ok{};
  const std::string key = options.prefix.substr(0, options.prefix.size() - 1);
  if (!store->head(key)) return Ok{};
  return Error{Code::kInvalidArgument,
               fmt::format("{}/{}: is an object; what is mounted is the folder that it is in",
                           store->url(), key)};
}

Status Mount::Impl::attach(const std::string& path) {
  YARD_ASSIGN(UniqueFd device, attach_mount(path, url_of(*store, options), options.allow_other));
  mount_point = path;
  is_attached = true;
  YARD_ASSIGN(server, FuseServer::open(std::move(device), FuseFiles::operations(), &*files,
                                       options.passthrough && cache != nullptr));
  files->set_server(server.get());
  server->serve(kServerThreads);
  raise_kernel_read_ahead(path);
  return Ok{};
}

Status Mount::Impl::stop(const StopToken& hurry) {
  const std::lock_guard lock(stop_mutex);
  if (is_stopped) return Ok{};
  is_stopped = true;
  Status detached = Ok{};
  const bool has_ended = server && server->ended().stopped();
  if (is_attached && !has_ended) detached = detach_mount(mount_point, DetachMode::kLazily);
  if (detached && server && !has_ended &&
      !wait_for_either(server->ended(), hurry, options.drain_max))
    log_warning("{}: files are still open; their readers get an error now", mount_point);
  stop_source.request();
  if (options.store_stop) options.store_stop->request();
  // All requests are answered before the connection goes.
  if (server) server->stop();
  queue.reset();
  if (content) content->end();
  files.reset();
  server.reset();
  return detached;
}

// ---- the interface

Mount::Mount(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Mount::~Mount() {
  if (const Status stopped = stop(); !stopped) log_warning("{}", stopped.error().message);
}

Result<std::unique_ptr<Mount>> Mount::start(std::shared_ptr<storage::ObjectStore> store,
                                            MountOptions options, Clock& clock) {
  YARD_TRY(check(options));
  const std::string given = options.mount_point;
  YARD_TRY(clear_mount_point(given));
  YARD_ASSIGN(const UniqueFd hold, hold_mount_point(given));
  YARD_TRY(clear_mount_point(given));  // what came before the hold was ours
  std::error_code error;
  const std::string mount_point = std::filesystem::canonical(given, error).string();
  if (error) return errno_error(given, error.value());
  std::unique_ptr<Mount> mount(
      new Mount(std::make_unique<Impl>(std::move(store), std::move(options), clock)));
  YARD_TRY(mount->impl_->build());
  YARD_TRY(mount->impl_->attach(mount_point));
  return mount;
}

Status Mount::stop(const StopToken& hurry) {
  return impl_->stop(hurry);
}

StopToken Mount::ended() const {
  return impl_->server ? impl_->server->ended() : impl_->stop_source.token();
}

const CounterRegistry& Mount::counters() const {
  return impl_->counters;
}

uint64_t Mount::memory_used_bytes() const {
  return impl_->memory->used_bytes();
}

uint64_t Mount::held_name_count() const {
  return impl_->inodes->count();
}

bool Mount::was_empty() const {
  return impl_->is_empty;
}

bool Mount::has_passthrough() const {
  return impl_->server && impl_->server->has_passthrough();
}

}  // namespace yard::mount
