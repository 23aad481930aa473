// TrailedBody: a body that is summed while it is sent, its checksum behind it (aws-chunked, one
// unsigned chunk and a trailer), so that it is read once.
#pragma once

#include <optional>
#include <string>

#include "net/aws_chunked.h"
#include "storage/object_store.h"

namespace yard::storage {

// Used by one thread at a time.
class TrailedBody {
 public:
  // `size_bytes` of what `read` gives, one at least.
  TrailedBody(ChecksumAlgorithm algorithm, RangeReader read, uint64_t size_bytes);

  // What the request says of it, besides content-length.
  Headers headers() const;
  uint64_t encoded_bytes() const;
  // The encoded bytes from `offset` on, all of `into`. In order; offset 0 begins again. kInternal
  // for another order; errors of `read`.
  Status read(uint64_t offset, std::span<std::byte> into);
  // Of the content. Contract: all of it was read.
  std::string checksum_base64() const;

 private:
  Status read_content(std::span<std::byte> into);

  const ChecksumAlgorithm algorithm_;
  const RangeReader read_;
  const uint64_t size_bytes_;
  const std::string before_;
  uint64_t at_ = 0;  // of the encoded bytes
  AwsChunkedEncoder encoder_;
  std::string behind_;  // once the content is read
};

}  // namespace yard::storage
