// BodyReader: a request's body, decoded, and compared with everything that the request says of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gateway/object_meta.h"
#include "gateway/s3_error.h"
#include "net/aws_chunked.h"
#include "net/checksums.h"
#include "net/http_server.h"
#include "net/md5_group.h"
#include "net/sigv4.h"

namespace yard::gateway {

// What was found when the whole body had been read.
struct BodyDigests {
  uint64_t size_bytes = 0;
  std::string md5;     // 16 bytes
  std::string wanted;  // the digest of the algorithm asked for, not encoded
};

// Used by one thread; the request outlives it.
class BodyReader {
 public:
  using Sink = std::function<S3Status(std::span<const std::byte> bytes)>;

  // kOfObject: the headers' checksum is that of an object, not of this body.
  enum class Checksums { kOfBody, kOfObject };
  // MissingContentLength, InvalidRequest, InvalidDigest: headers that no body could match.
  static S3Result<BodyReader> open(Request& request, const VerifiedRequest& verified,
                                   Checksums checksums = Checksums::kOfBody);

  uint64_t size_bytes() const { return size_bytes_; }  // decoded
  // The algorithm of a checksum that comes with the body, in a header or behind it.
  std::optional<ChecksumAlgorithm> claimed_algorithm() const { return claimed_algorithm_; }

  // Gives `sink` all bytes, then compares: nothing that it got may be kept unless this returns
  // digests. IncompleteBody, BadDigest, XAmzContentSHA256Mismatch, SignatureDoesNotMatch.
  // `md5_group`: for the MD5 of large bodies; null: each by itself.
  S3Result<BodyDigests> read(ChecksumAlgorithm wanted, Md5Group* md5_group, const Sink& sink);
  // The whole body, for documents; MaxMessageLengthExceeded beyond `size_bytes_max`.
  S3Result<std::string> read_all(size_t size_bytes_max);

 private:
  class Digests;
  BodyReader(Request& request, const VerifiedRequest& verified)
      : request_(&request), verified_(&verified) {}
  bool is_aws_chunked() const;
  S3Status read_claims(Checksums checksums);
  S3Status read_size();
  S3Result<size_t> read_piece(std::span<std::byte> into);
  S3Status read_plain(const Sink& sink, Digests& digests);
  S3Status read_aws_chunked(AwsChunkedDecoder& decoder, const Sink& sink, Digests& digests);
  S3Status compare(const Digests& digests) const;

  Request* request_;
  const VerifiedRequest* verified_;
  uint64_t size_bytes_ = 0;
  std::optional<ChecksumAlgorithm> claimed_algorithm_;
  // Digests that the headers name.
  std::vector<std::pair<ChecksumAlgorithm, std::string>> claims_;
};

}  // namespace yard::gateway
