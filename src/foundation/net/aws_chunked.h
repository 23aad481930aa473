// The `aws-chunked` coding of S3 uploads: chunks that may each be signed, and checksums behind
// them.
//
//   10000;chunk-signature=<64 hex>\r\n <65536 bytes> \r\n ... 0;chunk-signature=<64 hex>\r\n
//   x-amz-checksum-crc32c:sOO8/Q==\r\n x-amz-trailer-signature:<64 hex>\r\n \r\n
//
// It lies inside of HTTP's own transfer coding, which the HTTP server has taken off before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "net/checksums.h"
#include "net/http_message.h"
#include "net/sigv4.h"

namespace yard {

struct AwsChunkedOptions {
  std::optional<ChunkSigner> signer;  // each chunk must be signed; none: no signatures in the body
  bool has_trailers = false;          // of the kinds ...-TRAILER
  std::vector<std::string> trailers;  // the names announced by x-amz-trailer, lower case
  uint64_t decoded_size_bytes = 0;    // x-amz-decoded-content-length
  // A signed chunk up to this size gives no byte before its signature was found right. Larger ones
  // are passed on as they come, and the body fails at their end.
  size_t held_chunk_bytes_max = size_t{1} << 20;
};

// The decoder's options for a request of one of the streaming kinds. Refusals (AuthError::code):
// MissingContentLength, InvalidRequest (x-amz-trailer announces what we cannot check).
std::variant<AwsChunkedOptions, AuthError> aws_chunked_options(const VerifiedRequest& verified,
                                                               const Headers& headers);

// Takes a body in pieces of any size and gives back its bytes. Not thread-safe. Holds at most one
// chunk of held_chunk_bytes_max and some hundred bytes of lines.
//
//   while (!piece.empty()) {
//     YARD_ASSIGN(const auto bytes, decoder.next(piece));
//     write(bytes);
//   }
//   at the end of the body: YARD_TRY(decoder.finish());
//
// Nothing may be kept of an object whose finish() was not Ok: its size, its last signature and its
// checksums are known only then. Errors: kCorrupt for bytes that are not those that were signed or
// checked, kInvalidArgument for another form; error_code() has AWS's name for it. A decoder that
// failed fails again.
class AwsChunkedDecoder {
 public:
  explicit AwsChunkedDecoder(AwsChunkedOptions options);

  // Takes bytes off the front of `piece` and gives the next decoded ones, a view into the piece or
  // into the decoder, valid until the next call; may be empty.
  Result<std::span<const std::byte>> next(std::span<const std::byte>& piece);
  Status finish();

  // After a failure: IncompleteBody, InvalidRequest, SignatureDoesNotMatch, MalformedTrailerError,
  // BadDigest.
  std::string_view error_code() const { return error_code_; }
  // Behind the body, as they came (names lower case), without the signature. Checksums among them
  // have been compared with the bytes.
  const Headers& trailers() const { return trailers_; }
  // Whether a checksum of that kind is announced, so that after finish() it is in trailers().
  bool sums(ChecksumAlgorithm algorithm) const;

 private:
  enum class State { kSizeLine, kData, kDataEnd, kTrailers, kDone, kFailed };
  using Bytes = std::span<const std::byte>;

  Error fail(std::string_view aws_code, Code code, std::string message);
  Status take_line(Bytes& piece, bool& is_whole);
  Status read_size_line(std::string_view line);
  Status begin_data(uint64_t size_bytes);
  Result<Bytes> take_data(Bytes& piece);
  Result<Bytes> take_held(Bytes& piece);
  Status check_chunk_signature(std::string_view data_sha256);
  Status end_of_chunks();
  Status read_trailer_line(std::string_view line);
  Status read_trailer(std::string_view name, std::string_view value);
  Status check_trailer_signature(std::string_view signature);
  Status end_of_trailers();
  Status check_checksums();
  Bytes good(Bytes bytes);

  AwsChunkedOptions options_;
  State state_ = State::kSizeLine;
  std::string line_;               // of a size or trailer, so far
  std::string claimed_signature_;  // of the chunk being read
  uint64_t chunk_at_bytes_ = 0;    // its place in the decoded body
  uint64_t chunk_left_bytes_ = 0;
  uint64_t decoded_bytes_ = 0;
  bool is_held_ = false;  // the chunk being read waits for its signature
  std::vector<std::byte> held_;
  std::optional<Checksum> chunk_sha256_;  // of a signed chunk too large to hold
  std::vector<Checksum> checksums_;       // of the whole, one for each announced
  Headers trailers_;
  std::string trailer_text_;  // as it is signed
  bool is_trailer_signed_ = false;
  std::optional<Error> error_;
  std::string_view error_code_;
};

// In the answer to CreateMultipartUpload, of any value: parts may come with an unsigned trailer
// also without TLS. Ours says so; no other server is taken to understand it, for one that does not
// would store the coding as content.
inline constexpr std::string_view kTakesTrailersHeader = "x-trainyard-takes-trailers";

// The other side, for our client: unsigned chunks with a checksum behind them
// (kStreamingUnsignedPayloadTrailer), to be sent over TLS or to a trusted network. Not thread-safe.
class AwsChunkedEncoder {
 public:
  static constexpr std::string_view kChunkEnd = "\r\n";

  explicit AwsChunkedEncoder(ChecksumAlgorithm algorithm) : checksum_(algorithm) {}

  // The line to send before `data`, not empty; kChunkEnd goes behind the data.
  std::string begin_chunk(std::span<const std::byte> data);
  // The same where the data comes in pieces: each is given to add().
  static std::string chunk_line(uint64_t size_bytes);
  void add(std::span<const std::byte> data) { checksum_.update(data); }
  // The end of the body.
  std::string finish() const;
  // Of all data so far.
  std::string checksum_base64() const { return checksum_.base64(); }

  // What the request says about such a body, besides content-length. Part of what is signed.
  static Headers headers(ChecksumAlgorithm algorithm, uint64_t decoded_size_bytes);
  // The content-length when every chunk but the last has `chunk_size_bytes`.
  static uint64_t encoded_size_bytes(ChecksumAlgorithm algorithm, uint64_t decoded_size_bytes,
                                     uint64_t chunk_size_bytes);

 private:
  Checksum checksum_;
};

}  // namespace yard
