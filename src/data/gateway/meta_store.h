// MetaStore: the metadata of objects' files, in an extended attribute of the file or, where the
// file system has none or too small ones, in a small file of ours.
//
// An attribute is set before the file gets its name, so that object and metadata appear at once.
// The small file is named after inode, size and time of the object's file and written before it
// gets its name: it can be found for that content only.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <optional>

#include "base/file.h"
#include "gateway/object_meta.h"
#include "gateway/s3_error.h"

namespace yard::gateway {

FileStamp stamp_of(const struct stat& info);

// Thread-safe.
class MetaStore {
 public:
  enum class Place { kAttributeOrFile, kFileOnly };  // the latter: as on a file system without them

  // `folder`: where the small files lie.
  explicit MetaStore(UniqueFd folder, Place place = Place::kAttributeOrFile);

  // Gives the open file a time that no other content of it had, and stores `meta` for it. Call when
  // all is written; the file must not change afterwards. Makes nothing durable but the small file.
  // Returns what the file's stamp is now.
  S3Result<FileStamp> attach(int fd, const ObjectMeta& meta);
  // What was attached to the file as it is now; nothing when it was never, or changed since.
  std::optional<ObjectMeta> find(int fd, const FileStamp& stamp) const;
  // Removes the small file of a content that is no more.
  void forget(const FileStamp& stamp);

 private:
  const UniqueFd folder_;
  const Place place_;
  std::atomic<bool> has_files_;  // spares the look for one where there are none
};

}  // namespace yard::gateway
