// What S3 knows of an object besides its bytes, and how it is kept beside them. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/checksums.h"

namespace yard::gateway {

// kComposite: of the checksums of an upload's parts, not of the object's bytes; ends in "-N".
enum class ChecksumType { kFullObject, kComposite };
std::string_view to_string(ChecksumType type);  // "FULL_OBJECT", "COMPOSITE"

struct ObjectChecksum {
  ChecksumAlgorithm algorithm = ChecksumAlgorithm::kCrc64Nvme;
  ChecksumType type = ChecksumType::kFullObject;
  std::string base64;
  bool operator==(const ObjectChecksum&) const = default;
};

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct ObjectMeta {
  std::string etag;    // without quotes
  HeaderList headers;  // content-type and others that are given back as they came; lower case
  HeaderList user;     // x-amz-meta-..., names without that prefix, lower case
  std::optional<ObjectChecksum> checksum;
  std::vector<uint64_t> part_sizes_bytes;  // of a multipart upload; else empty
  std::string upload_id;                   // of that upload
  bool operator==(const ObjectMeta&) const = default;
};

// The very content that metadata was written for. A file that was rewritten in place or replaced
// has another.
struct FileStamp {
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t mtime_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

struct StampedMeta {
  ObjectMeta meta;
  FileStamp stamp;
};

// One line of text, a query string: "size=12&mtime_ns=...&etag=...&h.content-type=text%2Fplain".
std::string encode_meta(const StampedMeta& stamped);
// Nothing for text that encode_meta() does not write.
std::optional<StampedMeta> decode_meta(std::string_view text);

// The ETag of a file that did not come through the gateway: opaque, other whenever the file's
// inode, size or time is. Its "-0" says that it is no MD5.
std::string etag_of(const FileStamp& stamp);

}  // namespace yard::gateway
