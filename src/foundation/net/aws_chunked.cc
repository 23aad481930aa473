#include "net/aws_chunked.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "net/encoding.h"
#include "net/sigv4_internal.h"

namespace yard {

using sigv4_internal::to_lower;

namespace {

constexpr size_t kLineBytesMax = 1024;
constexpr size_t kTrailerCountMax = 16;
constexpr std::string_view kSignatureField = "chunk-signature=";
constexpr std::string_view kTrailerSignature = "x-amz-trailer-signature";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> take(std::span<const std::byte>& piece, uint64_t size_bytes_max) {
  const size_t size_bytes = static_cast<size_t>(std::min<uint64_t>(size_bytes_max, piece.size()));
  const auto taken = piece.first(size_bytes);
  piece = piece.subspan(size_bytes);
  return taken;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// The number that fills `text`, without sign; nothing when it does not fit.
std::optional<uint64_t> number(std::string_view text, int base) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

// Each name of "x-amz-trailer: a, b". False for a checksum that we do not know.
bool read_announced(std::string_view text, std::vector<std::string>& names) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    std::string name = to_lower(trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!is_header_name(name) || names.size() >= kTrailerCountMax) return false;
    if (name.starts_with("x-amz-checksum-") && !checksum_of_header(name)) return false;
    names.push_back(std::move(name));
  }
  return true;
}

std::string trailer_line(const Checksum& checksum) {
  return std::string(checksum_header(checksum.algorithm())) + ":" + checksum.base64() + "\r\n";
}

std::string hex_number(uint64_t value) {
  char digits[16];
  const auto result = std::to_chars(digits, digits + sizeof digits, value, 16);
  return {digits, result.ptr};
}

}  // namespace

std::variant<AwsChunkedOptions, AuthError> aws_chunked_options(const VerifiedRequest& verified,
                                                               const Headers& headers) {
  AwsChunkedOptions options;
  if (verified.payload != PayloadKind::kStreamingUnsignedTrailer)
    options.signer = verified.chunk_signer;
  options.has_trailers = verified.payload != PayloadKind::kStreamingSigned;
  const auto size = number(headers.value_or("x-amz-decoded-content-length", ""), 10);
  if (!size)
    return AuthError{"MissingContentLength", 411,
                     "you must provide the x-amz-decoded-content-length HTTP header"};
  options.decoded_size_bytes = *size;
  const std::string announced = headers.joined("x-amz-trailer");
  if (options.has_trailers && !read_announced(announced, options.trailers))
    return AuthError{"InvalidRequest", 400,
                     "the value specified in the x-amz-trailer header is not supported"};
  return options;
}

AwsChunkedDecoder::AwsChunkedDecoder(AwsChunkedOptions options) : options_(std::move(options)) {
  for (const std::string& name : options_.trailers)
    if (const auto algorithm = checksum_of_header(name)) checksums_.emplace_back(*algorithm);
}

Error AwsChunkedDecoder::fail(std::string_view aws_code, Code code, std::string message) {
  state_ = State::kFailed;
  error_code_ = aws_code;
  error_ = Error{code, "aws-chunked body: " + std::move(message)};
  return *error_;
}

Result<std::span<const std::byte>> AwsChunkedDecoder::next(Bytes& piece) {
  while (!piece.empty() || state_ == State::kFailed) {
    bool is_whole = false;
    switch (state_) {
      case State::kData: {
        YARD_ASSIGN(const Bytes bytes, take_data(piece));
        if (!bytes.empty()) return bytes;
        break;
      }
      case State::kSizeLine:
        YARD_TRY(take_line(piece, is_whole));
        if (is_whole) YARD_TRY(read_size_line(std::exchange(line_, {})));
        break;
      case State::kDataEnd:
        YARD_TRY(take_line(piece, is_whole));
        if (is_whole && std::exchange(line_, {}) != "\r\n")
          return fail("InvalidRequest", Code::kInvalidArgument, "a chunk does not end with CR LF");
        if (is_whole) state_ = State::kSizeLine;
        break;
      case State::kTrailers:
        YARD_TRY(take_line(piece, is_whole));
        if (is_whole) YARD_TRY(read_trailer_line(std::exchange(line_, {})));
        break;
      case State::kDone:
        return fail("InvalidRequest", Code::kInvalidArgument, "bytes after its end");
      case State::kFailed:
        return *error_;
    }
  }
  return Bytes();
}

Status AwsChunkedDecoder::finish() {
  if (state_ == State::kFailed) return *error_;
  if (state_ != State::kDone)
    return fail("IncompleteBody", Code::kCorrupt,
                "ends after " + std::to_string(decoded_bytes_) + " of " +
                    std::to_string(options_.decoded_size_bytes) + " bytes");
  return Ok{};
}

bool AwsChunkedDecoder::sums(ChecksumAlgorithm algorithm) const {
  return std::ranges::any_of(
      checksums_, [&](const Checksum& checksum) { return checksum.algorithm() == algorithm; });
}

// Moves bytes up to the next LF into line_.
Status AwsChunkedDecoder::take_line(Bytes& piece, bool& is_whole) {
  const size_t limit = state_ == State::kDataEnd ? 2 : kLineBytesMax;
  const std::string_view text = text_of(piece);
  const size_t end = text.substr(0, limit - line_.size()).find('\n');
  is_whole = end != std::string_view::npos;
  line_ += text_of(take(piece, is_whole ? end + 1 : limit - line_.size()));
  if (is_whole || line_.size() < limit) return Ok{};
  if (state_ == State::kDataEnd)
    return fail("InvalidRequest", Code::kInvalidArgument, "a chunk does not end with CR LF");
  return fail("InvalidRequest", Code::kInvalidArgument,
              "a line of more than " + std::to_string(kLineBytesMax) + " bytes");
}

// "10000;chunk-signature=<64 hex>\r\n", unsigned "10000\r\n".
Status AwsChunkedDecoder::read_size_line(std::string_view line) {
  const auto wrong = [&] {
    return fail("InvalidRequest", Code::kInvalidArgument,
                options_.signer ? "a chunk does not begin with SIZE;chunk-signature=SIGNATURE"
                                : "a chunk does not begin with its size");
  };
  if (!line.ends_with("\r\n")) return wrong();
  line.remove_suffix(2);
  const size_t semicolon = std::min(line.find(';'), line.size());
  const auto size_bytes = number(line.substr(0, semicolon), 16);
  std::string_view rest = line.substr(semicolon);
  if (!size_bytes || (options_.signer ? !rest.starts_with(';') : !rest.empty())) return wrong();
  if (options_.signer) {
    rest.remove_prefix(1);
    if (!rest.starts_with(kSignatureField)) return wrong();
    claimed_signature_ = rest.substr(kSignatureField.size());
    if (claimed_signature_.size() != 64) return wrong();
  }
  return begin_data(*size_bytes);
}

Status AwsChunkedDecoder::begin_data(uint64_t size_bytes) {
  if (size_bytes > options_.decoded_size_bytes - decoded_bytes_)
    return fail("IncompleteBody", Code::kInvalidArgument,
                "more bytes than the " + std::to_string(options_.decoded_size_bytes) +
                    " of x-amz-decoded-content-length");
  chunk_at_bytes_ = decoded_bytes_;
  if (size_bytes == 0) return end_of_chunks();
  state_ = State::kData;
  chunk_left_bytes_ = size_bytes;
  is_held_ = options_.signer && size_bytes <= options_.held_chunk_bytes_max;
  held_.clear();
  chunk_sha256_.reset();
  if (options_.signer && !is_held_) chunk_sha256_.emplace(ChecksumAlgorithm::kSha256);
  return Ok{};
}

Result<std::span<const std::byte>> AwsChunkedDecoder::take_data(Bytes& piece) {
  if (is_held_) return take_held(piece);
  const Bytes bytes = take(piece, chunk_left_bytes_);
  chunk_left_bytes_ -= bytes.size();
  if (chunk_sha256_) chunk_sha256_->update(bytes);
  if (chunk_left_bytes_ == 0) {
    state_ = State::kDataEnd;
    if (chunk_sha256_) YARD_TRY(check_chunk_signature(chunk_sha256_->hex()));
  }
  return good(bytes);
}

// Nothing until the chunk is whole and its signature right; not copied where the piece has it all.
Result<std::span<const std::byte>> AwsChunkedDecoder::take_held(Bytes& piece) {
  Bytes bytes = take(piece, chunk_left_bytes_);
  chunk_left_bytes_ -= bytes.size();
  if (chunk_left_bytes_ > 0 || !held_.empty()) {
    held_.insert(held_.end(), bytes.begin(), bytes.end());
    bytes = held_;
  }
  if (chunk_left_bytes_ > 0) return Bytes();
  state_ = State::kDataEnd;
  YARD_TRY(check_chunk_signature(sha256_hex(text_of(bytes))));
  return good(bytes);
}

Status AwsChunkedDecoder::check_chunk_signature(std::string_view data_sha256) {
  if (equal_in_constant_time(options_.signer->sign_chunk(data_sha256), claimed_signature_))
    return Ok{};
  return fail(
      "SignatureDoesNotMatch", Code::kCorrupt,
      "the signature of the chunk at byte " + std::to_string(chunk_at_bytes_) + " is wrong");
}

std::span<const std::byte> AwsChunkedDecoder::good(Bytes bytes) {
  decoded_bytes_ += bytes.size();
  for (Checksum& checksum : checksums_) checksum.update(bytes);
  return bytes;
}

Status AwsChunkedDecoder::end_of_chunks() {
  if (options_.signer) YARD_TRY(check_chunk_signature(kEmptyPayloadSha256));
  if (decoded_bytes_ != options_.decoded_size_bytes)
    return fail("IncompleteBody", Code::kCorrupt,
                "its last chunk comes after " + std::to_string(decoded_bytes_) + " of " +
                    std::to_string(options_.decoded_size_bytes) + " bytes");
  state_ = State::kTrailers;
  return Ok{};
}

// Lines may end with LF alone, and before the signature of trailers an empty one may stand: AWS's
// documentation has both.
Status AwsChunkedDecoder::read_trailer_line(std::string_view line) {
  line.remove_suffix(line.ends_with("\r\n") ? 2 : 1);
  if (line.empty()) {
    const bool may_go_on = options_.signer && options_.has_trailers && !is_trailer_signed_;
    return may_go_on ? Status(Ok{}) : end_of_trailers();
  }
  const size_t colon = line.find(':');
  if (!options_.has_trailers || is_trailer_signed_ || colon == std::string_view::npos)
    return fail("MalformedTrailerError", Code::kInvalidArgument,
                "a line after its last chunk that is no trailer");
  return read_trailer(to_lower(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
}

Status AwsChunkedDecoder::read_trailer(std::string_view name, std::string_view value) {
  if (name == kTrailerSignature && options_.signer) return check_trailer_signature(value);
  if (std::ranges::find(options_.trailers, name) == options_.trailers.end() ||
      trailers_.contains(name) || !is_header_value(value))
    return fail("MalformedTrailerError", Code::kInvalidArgument,
                "a trailer that x-amz-trailer does not announce, or a second time");
  trailers_.add(name, value);
  trailer_text_.append(name).append(":").append(value).append("\n");
  return Ok{};
}

Status AwsChunkedDecoder::check_trailer_signature(std::string_view signature) {
  is_trailer_signed_ = true;
  const std::string& right = options_.signer->sign_trailers(sha256_hex(trailer_text_));
  if (equal_in_constant_time(right, signature)) return Ok{};
  return fail("SignatureDoesNotMatch", Code::kCorrupt, "the signature of its trailers is wrong");
}

Status AwsChunkedDecoder::end_of_trailers() {
  for (const std::string& name : options_.trailers)
    if (!trailers_.contains(name))
      return fail("MalformedTrailerError", Code::kInvalidArgument,
                  "the announced trailer " + name + " is missing");
  YARD_TRY(check_checksums());
  state_ = State::kDone;
  return Ok{};
}

Status AwsChunkedDecoder::check_checksums() {
  for (const Checksum& checksum : checksums_) {
    const std::string name(checksum_header(checksum.algorithm()));
    const auto claimed = base64_decode(trailers_.value_or(name, ""));
    if (!claimed || claimed->size() != checksum_size_bytes(checksum.algorithm()))
      return fail("InvalidRequest", Code::kInvalidArgument,
                  "the value of the trailer " + name + " is invalid");
    if (*claimed != checksum.digest())
      return fail("BadDigest", Code::kCorrupt,
                  "the " + std::string(to_string(checksum.algorithm())) +
                      " you specified did not match the calculated checksum");
  }
  return Ok{};
}

std::string AwsChunkedEncoder::begin_chunk(std::span<const std::byte> data) {
  YARD_CHECK(!data.empty());
  add(data);
  return chunk_line(data.size());
}

std::string AwsChunkedEncoder::chunk_line(uint64_t size_bytes) {
  YARD_CHECK(size_bytes > 0);
  return hex_number(size_bytes) + "\r\n";
}

std::string AwsChunkedEncoder::finish() const {
  return "0\r\n" + trailer_line(checksum_) + "\r\n";
}

Headers AwsChunkedEncoder::headers(ChecksumAlgorithm algorithm, uint64_t decoded_size_bytes) {
  return {{"content-encoding", "aws-chunked"},
          {"x-amz-decoded-content-length", std::to_string(decoded_size_bytes)},
          {"x-amz-sdk-checksum-algorithm", to_string(algorithm)},
          {"x-amz-trailer", checksum_header(algorithm)}};
}

uint64_t AwsChunkedEncoder::encoded_size_bytes(ChecksumAlgorithm algorithm,
                                               uint64_t decoded_size_bytes,
                                               uint64_t chunk_size_bytes) {
  YARD_CHECK(chunk_size_bytes > 0);
  const auto framed = [](uint64_t size) { return hex_number(size).size() + 4 + size; };
  const uint64_t rest_bytes = decoded_size_bytes % chunk_size_bytes;
  return decoded_size_bytes / chunk_size_bytes * framed(chunk_size_bytes) +
         (rest_bytes > 0 ? framed(rest_bytes) : 0) + AwsChunkedEncoder(algorithm).finish().size();
}

}  // namespace yard
