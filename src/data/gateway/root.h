// Root: the served folder. Each of its folders is a bucket; ROOT/.yard holds what is ours:
//
//   .yard/lock              held by the running gateway; a second one is refused
//   .yard/credentials.json  see credentials.h
//   .yard/tmp               objects being written; emptied at the start
//   .yard/meta              see meta_store.h
//   .yard/odd/BUCKET        objects whose keys cannot be paths, see key_path.h
//   .yard/uploads           multipart uploads, see uploads.h
//   .yard/buckets/BUCKET    settings of a bucket, see notifications.h
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "gateway/bucket.h"
#include "gateway/meta_store.h"
#include "gateway/s3_error.h"
#include "gateway/temp_file.h"

namespace yard::gateway {

struct BucketInfo {
  std::string name;
  std::chrono::system_clock::time_point created;
};

// Whether S3 would let a bucket have this name; and whether a folder of this name is served as one:
// also those with upper case and '_', as people name folders.
bool is_new_bucket_name(std::string_view name);
bool is_served_name(std::string_view name);

// kInvalidArgument: the folder lies in one that is served, or was served, or holds such a one; each
// of two gateways would show the other's secrets as objects. Root::open() asks it too.
Status check_not_nested(const std::string& path);

// Thread-safe. Buckets and temporary files refer to it and must not outlive it.
class Root {
 public:
  // Makes .yard where it is missing, removes what a killed gateway left in .yard/tmp.
  // kNotFound, kInvalidArgument: no such folder; kUnavailable: another gateway serves it.
  static Result<std::unique_ptr<Root>> open(
      const std::string& path, MetaStore::Place meta_place = MetaStore::Place::kAttributeOrFile);

  S3Result<std::vector<BucketInfo>> list_buckets() const;  // in byte order of their names
  S3Result<Bucket> bucket(std::string_view name);          // NoSuchBucket
  // InvalidBucketName, BucketAlreadyOwnedByYou.
  S3Status create_bucket(std::string_view name);
  // BucketNotEmpty when there is an object or anything else but empty folders in it.
  S3Status delete_bucket(std::string_view name);

  S3Result<TempFile> make_temp_file();
  MetaStore& meta() { return meta_; }
  // A folder of .yard, by its name below it.
  const UniqueFd& odd() const { return odd_; }
  const UniqueFd& uploads() const { return uploads_; }
  const UniqueFd& settings() const { return settings_; }
  // Held while an object's condition is checked and its file gets or loses its name. The same for
  // the same key; different keys may share one.
  std::mutex& lock_of(std::string_view bucket, std::string_view key);

 private:
  struct Folders;
  explicit Root(Folders folders, MetaStore::Place meta_place);

  const UniqueFd root_;
  const UniqueFd lock_;
  const UniqueFd tmp_;
  const UniqueFd odd_;
  const UniqueFd uploads_;
  const UniqueFd settings_;
  MetaStore meta_;
  std::array<std::mutex, 64> locks_;
};

}  // namespace yard::gateway
