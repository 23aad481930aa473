#include "net/aws_chunked.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "net/encoding.h"

namespace yard {
namespace {

// What a body became: its bytes, and the name of the error that ended it.
struct Decoded {
  std::string bytes;
  std::string error_code;  // empty: accepted
  Headers trailers;
};

Decoded decode(const AwsChunkedOptions& options, std::string_view body, size_t piece_bytes) {
  AwsChunkedDecoder decoder(options);
  Decoded decoded;
  for (size_t at = 0; at < body.size(); at += piece_bytes) {
    auto piece = bytes_of(body.substr(at, piece_bytes));
    while (!piece.empty()) {
      const auto bytes = decoder.next(piece);
      if (!bytes) {
        decoded.error_code = decoder.error_code();
        EXPECT_FALSE(decoder.finish());
        return decoded;
      }
      decoded.bytes.append(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    }
  }
  if (!decoder.finish()) decoded.error_code = decoder.error_code();
  decoded.trailers = decoder.trailers();
  return decoded;
}

// Whatever the sizes of the pieces, the outcome is the same.
Decoded decode(const AwsChunkedOptions& options, std::string_view body) {
  const Decoded whole = decode(options, body, std::max<size_t>(body.size(), 1));
  for (const size_t piece_bytes : {1, 2, 3, 7, 64, 1000}) {
    if (body.size() / piece_bytes > 10000) continue;
    const Decoded pieces = decode(options, body, piece_bytes);
    EXPECT_EQ(pieces.error_code, whole.error_code) << "pieces of " << piece_bytes;
    EXPECT_TRUE(!whole.error_code.empty() || pieces.bytes == whole.bytes);
  }
  return whole;
}

// The account and time of the examples in AWS's documentation.
ChunkSigner example_signer(std::string seed) {
  return {
      SigningKey::derive("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1", "s3"),
      "20130524T000000Z", "20130524/us-east-1/s3/aws4_request", std::move(seed)};
}

const std::string kSeed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const std::string kTrailerSeed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";

std::string chunk(std::string_view data, std::string_view signature = "") {
  char size[20];
  std::snprintf(size, sizeof size, "%zx", data.size());
  std::string text = size;
  if (!signature.empty()) text.append(";chunk-signature=").append(signature);
  text += "\r\n";
  text += data;
  return data.empty() ? text : text + "\r\n";
}

std::string signed_chunk(ChunkSigner& signer, std::string_view data) {
  return chunk(data, signer.sign_chunk(sha256_hex(data)));
}

// In this order: operands of '+' have none.
std::string signed_chunks(ChunkSigner& signer, std::initializer_list<std::string_view> pieces) {
  std::string body;
  for (const std::string_view data : pieces) body += signed_chunk(signer, data);
  return body;
}

AwsChunkedOptions signed_options(uint64_t size_bytes) {
  return {.signer = example_signer(kSeed), .decoded_size_bytes = size_bytes};
}

AwsChunkedOptions trailer_options(uint64_t size_bytes, std::string trailer) {
  return {.has_trailers = true, .trailers = {std::move(trailer)}, .decoded_size_bytes = size_bytes};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(SignedChunks, TheDocumentedUploadIsAccepted) {
  const std::string body =
      chunk(std::string(65536, 'a'),
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648") +
      chunk(std::string(1024, 'a'),
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497") +
      chunk("", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9") + "\r\n";
  EXPECT_EQ(body.size(), 66824u);  // the content-length that the documentation gives
  const Decoded decoded = decode(signed_options(66560), body);
  EXPECT_EQ(decoded.error_code, "");
  EXPECT_TRUE(decoded.bytes == std::string(66560, 'a'));
}

std::string documented_trailer_body(std::string_view between) {
  return chunk(std::string(65536, 'a'),
               "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2") +
         chunk(std::string(1024, 'a'),
               "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7") +
         chunk("", "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992") +
         "x-amz-checksum-crc32c:sOO8/Q==" + std::string(between) +
         "x-amz-trailer-signature:"
         "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";
}

AwsChunkedOptions documented_trailer_options() {
  auto options = trailer_options(66560, "x-amz-checksum-crc32c");
  options.signer = example_signer(kTrailerSeed);
  return options;
}

TEST(SignedTrailers, TheDocumentedUploadIsAccepted) {
  for (const std::string_view between : {"\r\n", "\n\r\n"}) {
    const Decoded decoded = decode(documented_trailer_options(), documented_trailer_body(between));
    EXPECT_EQ(decoded.error_code, "");
    EXPECT_EQ(decoded.bytes.size(), 66560u);
    EXPECT_EQ(decoded.trailers.value_or("x-amz-checksum-crc32c", ""), "sOO8/Q==");
    EXPECT_EQ(decoded.trailers.size(), 1u);
  }
}

TEST(SignedTrailers, AnotherSignatureOrNoneIsRefused) {
  const std::string body = documented_trailer_body("\r\n");
  const auto options = documented_trailer_options();
  EXPECT_EQ(decode(options, replaced(body, "signature:d81f", "signature:d81e")).error_code,
            "SignatureDoesNotMatch");
  EXPECT_EQ(decode(options, replaced(body, "sOO8", "sOO9")).error_code, "SignatureDoesNotMatch");
  EXPECT_EQ(decode(options, replaced(body, "x-amz-trailer-signature", "x-amz-trailer-signatur"))
                .error_code,
            "MalformedTrailerError");
  EXPECT_EQ(decode(options, body.substr(0, body.find("x-amz-trailer-s")) + "\r\n").error_code,
            "IncompleteBody");
  EXPECT_EQ(
      decode(options, replaced(body, "\r\n\r\n", "\r\nx-amz-checksum-crc32c:a\r\n\r\n")).error_code,
      "MalformedTrailerError");
}

TEST(SignedChunks, ANewOrderIsRefused) {
  ChunkSigner signer = example_signer(kSeed);
  const std::string a = signed_chunk(signer, "first"), b = signed_chunk(signer, "again"),
                    end = signed_chunk(signer, "") + "\r\n";
  EXPECT_EQ(decode(signed_options(10), a + b + end).bytes, "firstagain");
  EXPECT_EQ(decode(signed_options(10), b + a + end).error_code, "SignatureDoesNotMatch");
  EXPECT_EQ(decode(signed_options(10), a + a + end).error_code, "SignatureDoesNotMatch");
  EXPECT_EQ(decode(signed_options(5), a + end).error_code, "SignatureDoesNotMatch");
}

TEST(SignedChunks, NoByteOfAHeldChunkIsGivenBeforeItsSignatureIsRight) {
  ChunkSigner signer = example_signer(kSeed);
  std::string body = signed_chunks(signer, {"good", std::string(5000, 'x')});
  body[body.size() - 3] = 'y';
  const auto options = signed_options(5004);
  for (const size_t piece_bytes : {size_t{1}, size_t{100}, body.size()}) {
    const Decoded decoded = decode(options, body, piece_bytes);
    EXPECT_EQ(decoded.error_code, "SignatureDoesNotMatch");
    EXPECT_EQ(decoded.bytes, "good");
  }
}

TEST(SignedChunks, LargerOnesArePassedOnAndStillVerified) {
  ChunkSigner signer = example_signer(kSeed);
  const std::string data(5000, 'x');
  std::string body = signed_chunks(signer, {data, ""}) + "\r\n";
  auto options = signed_options(5000);
  options.held_chunk_bytes_max = 4999;
  EXPECT_EQ(decode(options, body).error_code, "");
  EXPECT_EQ(decode(options, body, 1000).bytes, data);
  body[4000] = 'y';
  EXPECT_EQ(decode(options, body).error_code, "SignatureDoesNotMatch");
  EXPECT_GT(decode(options, body, 1000).bytes.size(), 3000u);
}

TEST(SignedChunks, OtherFormsAreRefused) {
  ChunkSigner signer = example_signer(kSeed);
  const std::string body = signed_chunks(signer, {"data", ""}) + "\r\n";
  const std::pair<std::string_view, std::string_view> changes[] = {{"4;", "4"},
                                                                   {"4;", "4;;"},
                                                                   {"4;", ";"},
                                                                   {"4;", "-4;"},
                                                                   {"4;", "0x4;"},
                                                                   {"4;", " 4;"},
                                                                   {"4;", "4 ;"},
                                                                   {"4;chunk", "4;Chunk"},
                                                                   {"signature=", "signature"},
                                                                   {"signature=", "signature=0"},
                                                                   {"\r\ndata", "\ndata"},
                                                                   {"data\r\n", "data\n"},
                                                                   {"data\r\n", "dataX\r\n"},
                                                                   {"data\r\n", "data\r\r\n"},
                                                                   {"4;", "10000000000000004;"}};
  for (const auto& [from, to] : changes)
    EXPECT_EQ(decode(signed_options(4), replaced(body, from, to)).error_code, "InvalidRequest")
        << from << " -> " << to;
  EXPECT_EQ(decode(signed_options(4), chunk("data")).error_code, "InvalidRequest");
  EXPECT_EQ(decode(signed_options(4), body + "x").error_code, "InvalidRequest");
  EXPECT_EQ(decode(signed_options(4), body.substr(0, body.size() - 2) + "a:b\r\n\r\n").error_code,
            "MalformedTrailerError");
  EXPECT_EQ(decode(signed_options(4), std::string(2000, '0')).error_code, "InvalidRequest");
}

TEST(AnyBody, CutShortAnywhereIsIncomplete) {
  ChunkSigner signer = example_signer(kSeed);
  const std::string signed_body = signed_chunks(signer, {"data", ""}) + "\r\n";
  for (size_t size = 0; size < signed_body.size(); ++size)
    EXPECT_EQ(decode(signed_options(4), signed_body.substr(0, size)).error_code, "IncompleteBody");
  const std::string body = chunk("data") + chunk("") + "x-amz-checksum-crc32:rfPzYw==\r\n\r\n";
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_EQ(decode(trailer_options(4, "x-amz-checksum-crc32"), body.substr(0, size)).error_code,
              "IncompleteBody");
  EXPECT_EQ(decode(trailer_options(4, "x-amz-checksum-crc32"), body).error_code, "");
}

TEST(AnyBody, AnotherSizeThanAnnouncedIsRefusedBeforeItsBytes) {
  const std::string body = chunk("data") + chunk("more") + chunk("") + "\r\n";
  EXPECT_EQ(decode({.decoded_size_bytes = 8}, body).error_code, "");
  const Decoded over = decode({.decoded_size_bytes = 7}, body);
  EXPECT_EQ(over.error_code, "IncompleteBody");
  EXPECT_EQ(over.bytes, "data");
  EXPECT_EQ(decode({.decoded_size_bytes = 9}, body).error_code, "IncompleteBody");
  EXPECT_EQ(decode({.decoded_size_bytes = 0}, body).error_code, "IncompleteBody");
  EXPECT_EQ(decode({.decoded_size_bytes = UINT64_MAX}, "FFFFFFFFFFFFFFFF\r\n").error_code,
            "IncompleteBody");
  EXPECT_EQ(decode({}, chunk("") + "\r\n").error_code, "");
}

TEST(UnsignedTrailers, EveryAlgorithmIsVerified) {
  for (const auto algorithm :
       {ChecksumAlgorithm::kCrc32, ChecksumAlgorithm::kCrc32c, ChecksumAlgorithm::kCrc64Nvme,
        ChecksumAlgorithm::kSha1, ChecksumAlgorithm::kSha256, ChecksumAlgorithm::kSha512}) {
    const std::string name(checksum_header(algorithm));
    const std::string data = "some bytes";
    const auto with = [&](const std::string& value) {
      return chunk("some ") + chunk("bytes") + chunk("") + name + ": " + value + "\r\n\r\n";
    };
    const auto options = trailer_options(data.size(), name);
    const Decoded good = decode(options, with(checksum_base64(algorithm, bytes_of(data))));
    EXPECT_EQ(good.error_code, "") << name;
    EXPECT_EQ(good.bytes, data);
    EXPECT_EQ(decode(options, with(checksum_base64(algorithm, bytes_of("Some bytes")))).error_code,
              "BadDigest");
    for (const std::string value :
         {"", "AA==", "?", "AAAAAA=", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="})
      EXPECT_EQ(decode(options, with(value)).error_code, "InvalidRequest") << name << " " << value;
  }
}

TEST(UnsignedTrailers, OtherTrailersThanAnnouncedAreRefused) {
  const std::string begin = chunk("data") + chunk("");
  const auto options = trailer_options(4, "x-amz-checksum-crc32");
  const std::string right = "x-amz-checksum-crc32:rfPzYw==\r\n";
  EXPECT_EQ(decode(options, begin + "X-Amz-Checksum-CRC32: rfPzYw== \r\n\r\n").error_code, "");
  EXPECT_EQ(decode(options, begin + "\r\n").error_code, "MalformedTrailerError");
  EXPECT_EQ(decode(options, begin + right + right + "\r\n").error_code, "MalformedTrailerError");
  EXPECT_EQ(decode(options, begin + "x-amz-checksum-sha1:a\r\n\r\n").error_code,
            "MalformedTrailerError");
  EXPECT_EQ(decode(options, begin + right + "x-amz-meta-a:b\r\n\r\n").error_code,
            "MalformedTrailerError");
  EXPECT_EQ(decode(options, begin + "no colon\r\n\r\n").error_code, "MalformedTrailerError");
  EXPECT_EQ(decode(options, begin + std::string(5000, 'x')).error_code, "InvalidRequest");
  EXPECT_EQ(decode(options, chunk("data", std::string(64, '0'))).error_code, "InvalidRequest");
}

TEST(AnyBody, AFailedDecoderFailsAgain) {
  AwsChunkedDecoder decoder({.decoded_size_bytes = 4});
  auto piece = bytes_of("zz\r\n");
  EXPECT_FALSE(decoder.next(piece));
  auto good = bytes_of("4\r\ndata\r\n0\r\n\r\n");
  EXPECT_FALSE(decoder.next(good));
  const Status status = decoder.finish();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  EXPECT_EQ(decoder.error_code(), "InvalidRequest");
}

TEST(Encoder, WritesWhatTheDecoderReads) {
  std::string data;
  for (int i = 0; i < 10000; ++i) data += static_cast<char>(i * 31);
  for (const auto algorithm : {ChecksumAlgorithm::kCrc32, ChecksumAlgorithm::kCrc32c,
                               ChecksumAlgorithm::kCrc64Nvme, ChecksumAlgorithm::kSha256})
    for (const size_t size : {0, 1, 15, 16, 4096, 8192, 10000}) {
      AwsChunkedEncoder encoder(algorithm);
      std::string body;
      for (size_t at = 0; at < size; at += 4096) {
        const auto piece = std::string_view(data).substr(at, std::min<size_t>(4096, size - at));
        body += encoder.begin_chunk(bytes_of(piece));
        body.append(piece).append(AwsChunkedEncoder::kChunkEnd);
      }
      body += encoder.finish();
      EXPECT_EQ(body.size(), AwsChunkedEncoder::encoded_size_bytes(algorithm, size, 4096));

      VerifiedRequest verified{.payload = PayloadKind::kStreamingUnsignedTrailer,
                               .chunk_signer = example_signer(kSeed)};
      const auto options =
          aws_chunked_options(verified, AwsChunkedEncoder::headers(algorithm, size));
      ASSERT_TRUE(std::holds_alternative<AwsChunkedOptions>(options));
      const Decoded decoded = decode(std::get<AwsChunkedOptions>(options), body);
      EXPECT_EQ(decoded.error_code, "");
      EXPECT_TRUE(decoded.bytes == data.substr(0, size));
      EXPECT_EQ(decoded.trailers.value_or(checksum_header(algorithm), ""),
                checksum_base64(algorithm, bytes_of(data).first(size)));
    }
}

std::string options_error(const Headers& headers,
                          PayloadKind kind = PayloadKind::kStreamingUnsignedTrailer) {
  const auto options =
      aws_chunked_options({.payload = kind, .chunk_signer = example_signer(kSeed)}, headers);
  const auto* error = std::get_if<AuthError>(&options);
  return error == nullptr ? "" : std::string(error->code);
}

TEST(Options, HeadersThatTellTooLittleAreRefused) {
  const std::string_view length = "x-amz-decoded-content-length";
  EXPECT_EQ(options_error({{length, "12"}}), "");
  EXPECT_EQ(options_error({}), "MissingContentLength");
  for (const std::string_view value : {"", "-1", "1.5", "0x10", "99999999999999999999", "1 2"})
    EXPECT_EQ(options_error({{length, value}}), "MissingContentLength") << value;
  EXPECT_EQ(options_error({{length, "1"}, {"x-amz-trailer", "x-amz-checksum-crc32, x-amz-b"}}), "");
  for (const std::string_view value :
       {"x-amz-checksum-xxhash64", "x-amz-checksum-crc16", "a b", "a,,b", ","})
    EXPECT_EQ(options_error({{length, "1"}, {"x-amz-trailer", value}}), "InvalidRequest") << value;
}

TEST(Options, FollowTheKindOfThePayload) {
  const Headers headers = {{"x-amz-decoded-content-length", "5"},
                           {"X-Amz-Trailer", "X-Amz-Checksum-CRC32"}};
  const auto options_of = [&](PayloadKind kind) {
    return std::get<AwsChunkedOptions>(
        aws_chunked_options({.payload = kind, .chunk_signer = example_signer(kSeed)}, headers));
  };
  EXPECT_FALSE(options_of(PayloadKind::kStreamingUnsignedTrailer).signer);
  EXPECT_TRUE(options_of(PayloadKind::kStreamingSigned).signer);
  EXPECT_FALSE(options_of(PayloadKind::kStreamingSigned).has_trailers);
  const auto both = options_of(PayloadKind::kStreamingSignedTrailer);
  EXPECT_TRUE(both.signer && both.has_trailers);
  EXPECT_EQ(both.trailers, std::vector<std::string>{"x-amz-checksum-crc32"});
  EXPECT_EQ(both.decoded_size_bytes, 5u);
}

}  // namespace
}  // namespace yard
