// The first four bytes choose the options, the rest is the body. However it is cut into pieces, it
// ends alike; never more bytes than announced, never an accepted body of another size.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/aws_chunked.h"
#include "net/encoding.h"

namespace yard {
namespace {

struct Outcome {
  std::string bytes;
  std::string_view error_code;
};

AwsChunkedOptions options_of(const uint8_t* choices) {
  AwsChunkedOptions options{.has_trailers = (choices[0] & 1) != 0,
                            .decoded_size_bytes = choices[1],
                            .held_chunk_bytes_max = choices[2]};
  if ((choices[0] & 2) != 0)
    options.signer.emplace(SigningKey::derive("secret", "20130524", "us-east-1", "s3"),
                           "20130524T000000Z", "20130524/us-east-1/s3/aws4_request",
                           std::string(64, '0'));
  for (const auto algorithm : {ChecksumAlgorithm::kCrc32, ChecksumAlgorithm::kSha1})
    if (options.has_trailers && (choices[0] & (4 << static_cast<int>(algorithm))) != 0)
      options.trailers.emplace_back(checksum_header(algorithm));
  return options;
}

Outcome decode(const AwsChunkedOptions& options, std::string_view body, size_t piece_bytes) {
  AwsChunkedDecoder decoder(options);
  Outcome outcome;
  for (size_t at = 0; at < body.size(); at += piece_bytes) {
    auto piece = bytes_of(body.substr(at, piece_bytes));
    while (!piece.empty()) {
      const auto bytes = decoder.next(piece);
      if (!bytes) {
        outcome.error_code = decoder.error_code();
        return outcome;
      }
      outcome.bytes.append(reinterpret_cast<const char*>(bytes->data()), bytes->size());
      YARD_CHECK(outcome.bytes.size() <= options.decoded_size_bytes);
    }
  }
  if (!decoder.finish()) outcome.error_code = decoder.error_code();
  YARD_CHECK(!outcome.error_code.empty() || outcome.bytes.size() == options.decoded_size_bytes);
  return outcome;
}

}  // namespace
}  // namespace yard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard;
  if (size < 4) return 0;
  const AwsChunkedOptions options = options_of(data);
  const std::string_view body(reinterpret_cast<const char*>(data) + 4, size - 4);
  const Outcome whole = decode(options, body, body.size() + 1);
  for (const size_t piece_bytes : {size_t{1}, size_t{data[3]} + 1}) {
    const Outcome pieces = decode(options, body, piece_bytes);
    YARD_CHECK(pieces.error_code == whole.error_code);
    YARD_CHECK(!whole.error_code.empty() || pieces.bytes == whole.bytes);
  }
  return 0;
}
