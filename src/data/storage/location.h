// Opening what a URL names: s3://bucket/key, file:///path, or a path.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "storage/object_store.h"
#include "storage/s3_store.h"

namespace yard::storage {

// Opens locations; those of one program share one S3 service and one store for each bucket.
// Thread-safe. The stores may outlive it.
class Opener {
 public:
  // Nothing is read or connected to before the first s3:// URL is opened.
  explicit Opener(S3Options s3) : s3_options_(std::move(s3)) {}

  // s3://bucket/key: the bucket's store and the key, which may be empty or a prefix; whether either
  // exists is not asked. A path or file:// URL: the directory and an empty key where there is one,
  // else the parent directory (kNotFound when missing) and the name. kInvalidArgument: no URL, or a
  // bucket is missing in it.
  Result<Location> open(std::string_view url);
  Result<std::shared_ptr<S3Service>> s3();

 private:
  const S3Options s3_options_;
  std::mutex mutex_;
  std::shared_ptr<S3Service> service_;
  std::map<std::string, std::shared_ptr<S3Store>, std::less<>> buckets_;
};

// One location by itself.
Result<Location> open_location(std::string_view url, const S3Options& s3);

}  // namespace yard::storage
