#include "url_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/subprocess.h"

namespace yard::python {

using storage::Location;
using storage::ObjectInfo;

namespace {

constexpr std::string_view kS3Scheme = "s3://";
constexpr std::string_view kFileScheme = "file://";

Error read_only() {
  return {Code::kInvalidArgument, "the shards of a loader are only read"};
}

}  // namespace

storage::S3Options s3_options(const StopToken& stop) {
  storage::S3Options options;
  options.environment = environment();
  options.any_key = true;
  options.stop = stop;
  return options;
}

UrlKind kind_of(const std::vector<std::string>& urls) {
  const auto count = std::ranges::count_if(
      urls, [](const std::string& url) { return url.starts_with(kS3Scheme); });
  if (count == 0) return UrlKind::kPath;
  return size_t(count) == urls.size() ? UrlKind::kS3 : UrlKind::kMixed;
}

UrlStore::UrlStore(UrlKind kind, std::shared_ptr<storage::Opener> opener)
    : kind_(kind), opener_(std::move(opener)) {}

std::string UrlStore::key_of(std::string_view url) const {
  if (kind_ == UrlKind::kPath) return std::string(url.substr(1));
  if (kind_ == UrlKind::kS3) return std::string(url.substr(kS3Scheme.size()));
  return (url.starts_with('/') ? std::string(kFileScheme) : "") + std::string(url);
}

std::string UrlStore::url_of(std::string_view key) const {
  if (kind_ == UrlKind::kPath) return "/" + std::string(key);
  if (kind_ == UrlKind::kS3) return std::string(kS3Scheme) + std::string(key);
  return std::string(key.starts_with(kFileScheme) ? key.substr(kFileScheme.size()) : key);
}

// With a key behind it, it reads as a URL.
std::string UrlStore::url() const {
  if (kind_ == UrlKind::kPath) return "file://";
  return kind_ == UrlKind::kS3 ? "s3:/" : "urls:";
}

Status UrlStore::add(const std::vector<std::string>& urls) {
  for (const std::string& url : urls) {
    YARD_TRY(locate(key_of(url)));
    shards_.insert(key_of(url));
  }
  return Ok{};
}

Result<Location> UrlStore::locate(std::string_view key) {
  const std::lock_guard lock(mutex_);
  if (const auto found = locations_.find(key); found != locations_.end()) return found->second;
  const std::string url = url_of(key);
  Location location;
  if (url.starts_with(kS3Scheme)) {
    YARD_ASSIGN(location, opener_->open(url));
    remote_ = location.store;
  } else {
    std::error_code ignored;  // a link that leads nowhere is found missing when it is read
    std::filesystem::path path = url;
    if (std::filesystem::is_symlink(path, ignored)) {
      const auto target = std::filesystem::canonical(path, ignored);
      if (!ignored) path = target;
    }
    auto& folder = folders_[path.parent_path().string()];
    if (!folder) {
      YARD_ASSIGN(const Location opened, opener_->open(path.parent_path().string()));
      folder = opened.store;
    }
    location = {folder, path.filename().string()};
  }
  locations_.emplace(key, location);
  return location;
}

Status UrlStore::get_range(std::string_view key, std::string_view etag, uint64_t offset,
                           std::span<std::byte> out) {
  YARD_ASSIGN(const Location at, locate(key));
  return at.store->get_range(at.key, etag, offset, out);
}

Status UrlStore::get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                              uint64_t size_bytes, const storage::RangeSink& sink) {
  YARD_ASSIGN(const Location at, locate(key));
  return at.store->get_range_to(at.key, etag, offset, size_bytes, sink);
}

Status UrlStore::get_object(const ObjectInfo& info, std::span<std::byte> out) {
  YARD_ASSIGN(const Location at, locate(info.key));
  ObjectInfo there = info;
  there.key = at.key;
  return at.store->get_object(there, out);
}

Result<ObjectInfo> UrlStore::head(std::string_view key) {
  YARD_ASSIGN(const Location at, locate(key));
  YARD_ASSIGN(ObjectInfo info, at.store->head(at.key));
  info.key = key;
  return info;
}

storage::StoreSpeed UrlStore::speed() const {
  const std::lock_guard lock(mutex_);
  return remote_ ? remote_->speed() : storage::StoreSpeed{};
}

Result<storage::ListPage> UrlStore::list(const storage::ListRequest&) {
  return read_only();
}

Result<ObjectInfo> UrlStore::put(std::string_view, std::span<const std::byte>,
                                 const storage::PutOptions&) {
  return read_only();
}

Result<std::unique_ptr<storage::Upload>> UrlStore::upload(std::string_view,
                                                          const storage::PutOptions&) {
  return read_only();
}

Result<ObjectInfo> UrlStore::copy(std::string_view, std::string_view, const storage::PutOptions&) {
  return read_only();
}

Status UrlStore::remove(std::string_view) {
  return read_only();
}

}  // namespace yard::python
