// FilesStore: the objects of a manifest, of whatever stores, under the paths that they have in a
// channel's folder: what FastFile mounts.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channels/channel_source_internal.h"
#include "storage/object_store.h"

namespace yard::channels {

// Thread-safe, read-only: whatever writes fails with kInvalidArgument. Objects are those that the
// manifest's heads described; one that changes since is kCorrupt where it is read with its etag.
class FilesStore final : public storage::ObjectStore {
 public:
  // kInvalidArgument: two objects of one path, or a path that is a folder of another.
  static Result<std::shared_ptr<FilesStore>> make(const std::vector<SourceFile>& files,
                                                  std::string url);

  Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                   std::span<std::byte> out) override;
  Status get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                      uint64_t size_bytes, const storage::RangeSink& sink) override;
  Result<storage::ObjectInfo> head(std::string_view key) override;
  Result<storage::ListPage> list(const storage::ListRequest& request) override;
  Result<storage::ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                                  const storage::PutOptions& options) override;
  Result<std::unique_ptr<storage::Upload>> upload(std::string_view key,
                                                  const storage::PutOptions& options) override;
  Result<storage::ObjectInfo> copy(std::string_view source, std::string_view key,
                                   const storage::PutOptions& options) override;
  Status remove(std::string_view key) override;
  std::string url() const override { return url_; }
  storage::StoreSpeed speed() const override;

 private:
  explicit FilesStore(std::string url) : url_(std::move(url)) {}
  Result<const SourceFile*> find(std::string_view key) const;
  Error read_only() const;

  const std::string url_;                                 // of the manifest
  std::map<std::string, SourceFile, std::less<>> files_;  // by path
};

}  // namespace yard::channels
