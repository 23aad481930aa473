// Bucket: the objects of one folder, opened, replaced and removed by key.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "gateway/object_meta.h"
#include "gateway/s3_error.h"
#include "gateway/temp_file.h"

namespace yard::gateway {

class Root;

// An object's file, open for reading; stays whole when the object is replaced or removed.
struct ObjectFile {
  UniqueFd fd;
  FileStamp stamp;
  ObjectMeta meta;  // with an ETag also for a file that came by hand

  uint64_t size_bytes() const { return stamp.size_bytes; }
  std::chrono::system_clock::time_point modified() const;  // in whole seconds, as S3 has it
};

// Says whether a change may be made; called with what the key has now, null for nothing, while no
// other request can change it.
using Precondition = std::function<S3Status(const ObjectFile* existing)>;

// Not thread-safe itself; any number of them may work on one folder at once. Keys: 1..1024 bytes of
// UTF-8, not checked here.
class Bucket {
 public:
  Bucket(Root& root, std::string name, UniqueFd folder)
      : root_(&root), name_(std::move(name)), folder_(std::move(folder)) {}

  const std::string& name() const { return name_; }

  S3Result<ObjectFile> open(std::string_view key) const;  // NoSuchKey
  bool exists(std::string_view key) const { return open(key).has_value(); }

  // Makes the file, whose bytes are all written, the object `key` with this metadata: at once, and
  // durable when this returns.
  S3Status store(TempFile file, const ObjectMeta& meta, std::string_view key,
                 const Precondition& precondition);
  // Whether there was such an object. Removes the folders that it leaves empty.
  S3Result<bool> remove(std::string_view key, const Precondition& precondition);

  // A folder for reading its entries: of those that are paths, and of the others. Nothing where
  // there is none. `folder` is empty or ends in '/'.
  std::optional<UniqueFd> plain_folder(std::string_view folder) const;
  std::optional<UniqueFd> odd_folder(std::string_view folder) const;

 private:
  S3Status commit(TempFile file, std::string_view key, const Precondition& precondition);
  // kAppeared: somebody put a file there by hand just now.
  enum class Placed { kYes, kPathIsTaken, kAppeared };
  S3Result<ObjectFile> open_plain(std::string_view key) const;
  S3Result<ObjectFile> open_odd(std::string_view key) const;
  S3Result<ObjectFile> load(UniqueFd file) const;
  S3Result<UniqueFd> make_odd_folder() const;
  S3Result<Placed> place(TempFile& file, int base_fd, const std::string& path,
                         TempFile::Existing existing) const;
  S3Result<Placed> place_anywhere(TempFile& file, std::string_view key,
                                  TempFile::Existing existing) const;
  S3Result<bool> unlink_odd(std::string_view key) const;

  Root* root_;
  std::string name_;
  UniqueFd folder_;
};

}  // namespace yard::gateway
