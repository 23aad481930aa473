// DirectoryStore: a local folder as an object store; a file is an object, its relative path the
// key.
//
// Writes go to a hidden folder ".yard-staging" in the root and are renamed into place once they
// are whole and synced. What a crashed writer left there is swept by the next one.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "base/file.h"
#include "storage/object_store.h"

namespace yard::storage {

class FolderCache;
class OpenFiles;

inline constexpr std::string_view kStagingFolder = ".yard-staging";

// Thread-safe, and safe beside other processes that use the same folder.
//
// Where a folder differs from an object store:
//  - A key cannot be another key's folder: with "a", "a/b" is kInvalidArgument, and the reverse.
//  - No path leaves the root: a symbolic link inside it that leads out is kInvalidArgument, and is
//    left out of listings with a warning. Links to files inside are followed; links to folders are
//    followed by get_range() and head(), not by list(), which could not end. On kernels without
//    openat2 (before Linux 5.6) no link at all is followed.
//  - File names that are no keys (not UTF-8, too long) are left out of listings with a warning.
//  - The etag is made of inode, size and modification time in nanoseconds. Our own writes always
//    change it; a program that rewrites a file in place with the same size and sets its old time
//    back goes unnoticed.
//  - A large file that small parts of a pinned version are read of is kept open, 32 at most: moved
//    out of the folder it can be read for a while still, removed by another program its room is
//    free when it is closed.
//  - remove() also removes the folders that it leaves empty; so does an upload that is discarded.
class DirectoryStore final : public ObjectStore {
 public:
  // kNotFound: no such directory; kInvalidArgument: not a directory.
  static Result<std::unique_ptr<DirectoryStore>> open(const std::string& root);
  ~DirectoryStore() override;

  Result<RangeReader> reader(std::string_view key, std::string_view etag) override;
  Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                   std::span<std::byte> out) override;
  Result<ObjectInfo> head(std::string_view key) override;
  // A large folder is read and sorted once for all pages, unless names come or go meanwhile: a page
  // is as of its own time. Keeps at most 128 MiB of names between pages.
  Result<ListPage> list(const ListRequest& request) override;
  // Reads each folder once.
  Result<std::vector<ObjectInfo>> list_all(std::string_view prefix) override;
  // The same for who must not miss anything: tells each thing under `prefix` that is not listed,
  // and why: names that are no keys, links that lead nowhere, out or to a folder, pipes, sockets
  // and devices, folders that may not be read, which end the other listings.
  using LeftOut = std::function<void(const std::string& name, const std::string& why)>;
  Result<std::vector<ObjectInfo>> list_all(std::string_view prefix, const LeftOut& left_out);
  Result<ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                         const PutOptions& options) override;
  Result<std::unique_ptr<Upload>> upload(std::string_view key,
                                         const PutOptions& options = {}) override;
  // Shares the blocks where the file system can (copy_file_range).
  Result<ObjectInfo> copy(std::string_view source, std::string_view key,
                          const PutOptions& options) override;
  Status remove(std::string_view key) override;
  std::string url() const override;

  // Where the object's file is, for messages and for tools that need a path.
  std::string path_of(std::string_view key) const;

 private:
  class FileUpload;
  DirectoryStore(std::string root, UniqueFd root_fd);

  Result<std::unique_ptr<FileUpload>> start_upload(std::string_view key, const PutOptions& options);
  Result<UniqueFd> open_staging();
  Status check_own_key(std::string_view key) const;
  // The folder that holds `key`, made with its parents where missing.
  Result<UniqueFd> make_parent(std::string_view key) const;
  void remove_empty_parents(std::string_view key) const;

  const std::string root_;  // absolute
  const UniqueFd root_fd_;
  const std::unique_ptr<FolderCache> folders_;
  const std::unique_ptr<OpenFiles> open_files_;
  std::once_flag swept_;
};

}  // namespace yard::storage
