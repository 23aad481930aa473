// UrlStore: shards that lie in several folders and buckets, as one store that is only read.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/stop_token.h"
#include "storage/location.h"
#include "storage/object_store.h"

namespace yard::python {

// Keys and endpoint as AWS's tools find them; `stop` ends every request.
storage::S3Options s3_options(const StopToken& stop);

// Whether all URLs of a loader are of one kind; it decides what a key looks like.
enum class UrlKind {
  kPath,   // "data/a.tar" of "/data/a.tar"
  kS3,     // "bucket/a.tar" of "s3://bucket/a.tar"
  kMixed,  // the URL itself
};
UrlKind kind_of(const std::vector<std::string>& urls);

// Thread-safe. URLs are absolute paths or s3://bucket/key. A link in a folder is followed, also out
// of it, and so is that of its index.
class UrlStore final : public storage::ObjectStore {
 public:
  UrlStore(UrlKind kind, std::shared_ptr<storage::Opener> opener);

  std::string key_of(std::string_view url) const;
  std::string url_of(std::string_view key) const;
  // Before anything is read. kNotFound: no such folder. Whether the objects exist is not asked.
  Status add(const std::vector<std::string>& urls);
  bool has_shard(std::string_view key) const { return shards_.contains(key); }

  Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                   std::span<std::byte> out) override;
  Status get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                      uint64_t size_bytes, const storage::RangeSink& sink) override;
  Status get_object(const storage::ObjectInfo& info, std::span<std::byte> out) override;
  Result<storage::ObjectInfo> head(std::string_view key) override;
  std::string url() const override;
  storage::StoreSpeed speed() const override;

  // kInvalidArgument.
  Result<storage::ListPage> list(const storage::ListRequest& request) override;
  Result<storage::ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                                  const storage::PutOptions& options) override;
  Result<std::unique_ptr<storage::Upload>> upload(std::string_view key,
                                                  const storage::PutOptions& options) override;
  Result<storage::ObjectInfo> copy(std::string_view source, std::string_view key,
                                   const storage::PutOptions& options) override;
  Status remove(std::string_view key) override;

 private:
  Result<storage::Location> locate(std::string_view key);

  const UrlKind kind_;
  const std::shared_ptr<storage::Opener> opener_;
  std::set<std::string, std::less<>> shards_;  // keys; set by add() alone
  mutable std::mutex mutex_;
  std::map<std::string, storage::Location, std::less<>> locations_;  // by key
  std::map<std::string, std::shared_ptr<storage::ObjectStore>> folders_;
  std::shared_ptr<storage::ObjectStore> remote_;  // one of them, for speed()
};

}  // namespace yard::python
