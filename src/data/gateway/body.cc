#include "gateway/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "net/encoding.h"

namespace yard::gateway {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr uint64_t kGroupedBytesMin = 1 << 20;  // smaller bodies would wait longer than they hash

S3Error of_auth(const AuthError& error) {
  return S3Error(S3ErrorKind{error.code, error.http_status, ""}, error.message);
}

}  // namespace

// The digests of one body, each algorithm once.
class BodyReader::Digests {
 public:
  explicit Digests(Md5Group* md5_group) {
    if (md5_group != nullptr) grouped_md5_.emplace(*md5_group);
  }
  void add(ChecksumAlgorithm algorithm) {
    if (!is_grouped(algorithm) && !find(algorithm)) checksums_.emplace_back(algorithm);
  }
  void update(std::span<const std::byte> bytes) {
    size_bytes_ += bytes.size();
    for (Checksum& checksum : checksums_) checksum.update(bytes);
    if (grouped_md5_) grouped_md5_->update(bytes);
  }
  std::string digest(ChecksumAlgorithm algorithm) const {
    if (is_grouped(algorithm)) return grouped_md5_->digest();
    const Checksum* checksum = find(algorithm);
    YARD_CHECK(checksum != nullptr);
    return checksum->digest();
  }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  bool is_grouped(ChecksumAlgorithm algorithm) const {
    return algorithm == ChecksumAlgorithm::kMd5 && grouped_md5_;
  }
  const Checksum* find(ChecksumAlgorithm algorithm) const {
    const auto found = std::ranges::find_if(
        checksums_, [&](const Checksum& checksum) { return checksum.algorithm() == algorithm; });
    return found == checksums_.end() ? nullptr : &*found;
  }

  std::optional<Md5Group::Stream> grouped_md5_;
  std::vector<Checksum> checksums_;
  uint64_t size_bytes_ = 0;
};

S3Result<BodyReader> BodyReader::open(Request& request, const VerifiedRequest& verified,
                                      Checksums checksums) {
  BodyReader reader(request, verified);
  YARD_TRY(reader.read_claims(checksums));
  YARD_TRY(reader.read_size());
  return reader;
}

bool BodyReader::is_aws_chunked() const {
  return verified_->payload != PayloadKind::kSha256 && verified_->payload != PayloadKind::kUnsigned;
}

S3Status BodyReader::read_claims(Checksums checksums) {
  for (const auto& [name, value] : request_->headers()) {
    const auto algorithm = checksum_of_header(name);
    if (!algorithm) continue;
    const bool is_md5 = *algorithm == ChecksumAlgorithm::kMd5;
    if (!is_md5 && checksums == Checksums::kOfObject) continue;
    const auto digest = base64_decode(value);
    if (!digest || digest->size() != checksum_size_bytes(*algorithm)) {
      if (is_md5) return s3::kInvalidDigest;
      return S3Error(s3::kInvalidRequest,
                     fmt::format("Value for {} header is invalid.", checksum_header(*algorithm)));
    }
    if (!is_md5 && claimed_algorithm_)
      return S3Error(s3::kInvalidRequest,
                     "Expecting a single x-amz-checksum- header. Multiple checksum Types are not "
                     "allowed.");
    if (!is_md5) claimed_algorithm_ = *algorithm;
    claims_.emplace_back(*algorithm, *digest);
  }
  if (const auto trailer = request_->headers().find("x-amz-trailer"); trailer && is_aws_chunked())
    if (const auto algorithm = checksum_of_header(*trailer)) claimed_algorithm_ = *algorithm;
  return Ok{};
}

S3Status BodyReader::read_size() {
  const auto decoded = request_->headers().find("x-amz-decoded-content-length");
  if (is_aws_chunked() && decoded) {
    const auto [end, failed] =
        std::from_chars(decoded->data(), decoded->data() + decoded->size(), size_bytes_);
    if (failed == std::errc{} && end == decoded->data() + decoded->size()) return Ok{};
    return s3::kMissingContentLength;
  }
  const auto length = request_->content_length();
  if (!length || is_aws_chunked()) return s3::kMissingContentLength;
  size_bytes_ = *length;
  return Ok{};
}

// All of `into`, but for the body's end: what each piece costs is spread over many bytes.
S3Result<size_t> BodyReader::read_piece(std::span<std::byte> into) {
  size_t filled = 0;
  while (filled < into.size()) {
    auto bytes = request_->read(into.subspan(filled));
    if (!bytes) return S3Error(s3::kConnectionBroken, bytes.error().message);
    if (*bytes == 0) break;
    filled += *bytes;
  }
  return filled;
}

S3Result<BodyDigests> BodyReader::read(ChecksumAlgorithm wanted, Md5Group* md5_group,
                                       const Sink& sink) {
  Digests digests(size_bytes_ >= kGroupedBytesMin ? md5_group : nullptr);
  digests.add(ChecksumAlgorithm::kMd5);
  for (const auto& [algorithm, digest] : claims_) digests.add(algorithm);
  if (verified_->payload == PayloadKind::kSha256) digests.add(ChecksumAlgorithm::kSha256);
  std::string in_trailer;  // what was wanted, which the decoder sums already
  if (is_aws_chunked()) {
    auto options = aws_chunked_options(*verified_, request_->headers());
    if (const auto* refused = std::get_if<AuthError>(&options)) return of_auth(*refused);
    AwsChunkedDecoder decoder(std::get<AwsChunkedOptions>(std::move(options)));
    const bool is_in_trailer = decoder.sums(wanted);
    if (!is_in_trailer) digests.add(wanted);
    YARD_TRY(read_aws_chunked(decoder, sink, digests));
    if (is_in_trailer)
      in_trailer = base64_decode(decoder.trailers().value_or(checksum_header(wanted), "")).value();
  } else {
    digests.add(wanted);
    YARD_TRY(read_plain(sink, digests));
  }
  YARD_TRY(compare(digests));
  return BodyDigests{digests.size_bytes(), digests.digest(ChecksumAlgorithm::kMd5),
                     in_trailer.empty() ? digests.digest(wanted) : in_trailer};
}

S3Result<std::string> BodyReader::read_all(size_t size_bytes_max) {
  if (size_bytes_ > size_bytes_max) return s3::kMaxMessageLengthExceeded;
  std::string body;
  YARD_TRY(
      read(ChecksumAlgorithm::kMd5, nullptr, [&](std::span<const std::byte> bytes) -> S3Status {
        if (body.size() + bytes.size() > size_bytes_max) return s3::kMaxMessageLengthExceeded;
        body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return Ok{};
      }));
  return body;
}

S3Status BodyReader::read_plain(const Sink& sink, Digests& digests) {
  std::vector<std::byte> buffer(std::min<uint64_t>(size_bytes_ + 1, kPieceBytes));
  for (;;) {
    YARD_ASSIGN(const size_t bytes, read_piece(buffer));
    if (bytes == 0) return Ok{};
    const auto piece = std::span<const std::byte>(buffer).first(bytes);
    digests.update(piece);
    YARD_TRY(sink(piece));
  }
}

S3Status BodyReader::read_aws_chunked(AwsChunkedDecoder& decoder, const Sink& sink,
                                      Digests& digests) {
  const auto failure = [&](const Error& error) {
    if (decoder.error_code() == s3::kBadDigest.code) return S3Error(s3::kBadDigest);
    const int status = decoder.error_code() == "SignatureDoesNotMatch" ? 403 : 400;
    return S3Error(S3ErrorKind{decoder.error_code(), status, ""}, error.message);
  };
  std::vector<std::byte> buffer(kPieceBytes);
  for (;;) {
    YARD_ASSIGN(const size_t bytes, read_piece(buffer));
    if (bytes == 0) break;
    auto piece = std::span<const std::byte>(buffer).first(bytes);
    while (!piece.empty()) {
      auto decoded = decoder.next(piece);
      if (!decoded) return failure(decoded.error());
      digests.update(*decoded);
      YARD_TRY(sink(*decoded));
    }
  }
  if (const Status finished = decoder.finish(); !finished) return failure(finished.error());
  return Ok{};
}

S3Status BodyReader::compare(const Digests& digests) const {
  if (digests.size_bytes() != size_bytes_) return s3::kIncompleteBody;
  if (verified_->payload == PayloadKind::kSha256) {
    const std::string found = hex_encode(bytes_of(digests.digest(ChecksumAlgorithm::kSha256)));
    if (found != verified_->payload_sha256)
      return S3Error(s3::kContentSha256Mismatch)
          .with("ClientComputedContentSHA256", verified_->payload_sha256)
          .with("S3ComputedContentSHA256", found);
  }
  for (const auto& [algorithm, claimed] : claims_) {
    if (digests.digest(algorithm) == claimed) continue;
    if (algorithm == ChecksumAlgorithm::kMd5) return s3::kBadDigest;
    return S3Error(s3::kBadDigest, fmt::format("The {} you specified did not match the calculated "
                                               "checksum.",
                                               to_string(algorithm)));
  }
  return Ok{};
}

}  // namespace yard::gateway
