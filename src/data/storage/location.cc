#include "storage/location.h"

#include <fmt/format.h>

namespace yard::storage {

Result<std::shared_ptr<S3Service>> Opener::s3() {
  const std::lock_guard lock(mutex_);
  if (!service_) {
    YARD_ASSIGN(std::shared_ptr<S3Service> service, S3Service::open(s3_options_));
    // Once and now, not with each of a thousand objects.
    YARD_TRY(service->check_credentials());
    service_ = std::move(service);
  }
  return service_;
}

Result<Location> Opener::open(std::string_view url) {
  if (!is_s3_url(url)) {
    auto directory = open_directory(url);
    const bool is_object = !directory && (directory.error().code == Code::kNotFound ||
                                          directory.error().code == Code::kInvalidArgument);
    if (!is_object || url.ends_with('/')) return directory;
    return open_object(url);
  }
  YARD_ASSIGN(S3Url parts, parse_s3_url(url));
  if (parts.bucket.empty())
    return Error{Code::kInvalidArgument, fmt::format("'{}' names no bucket", url)};
  YARD_ASSIGN(std::shared_ptr<S3Service> service, s3());
  const std::lock_guard lock(mutex_);
  auto& store = buckets_[parts.bucket];
  if (!store) store = std::make_shared<S3Store>(std::move(service), parts.bucket);
  return Location{store, std::move(parts.key)};
}

Result<Location> open_location(std::string_view url, const S3Options& s3) {
  return Opener(s3).open(url);
}

}  // namespace yard::storage
