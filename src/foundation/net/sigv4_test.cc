#include "net/sigv4.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/fake_clock.h"
#include "net/checksums.h"
#include "net/uri.h"

namespace yard {
namespace {

using namespace std::chrono_literals;

constexpr Clock::Wall kExampleTime{std::chrono::sys_days(std::chrono::May / 24 / 2013)};
constexpr std::string_view kHost = "examplebucket.s3.amazonaws.com";

// The account of the examples in AWS's documentation of S3.
const Credentials kExample{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
const Credentials kTemporary{"ASIATEMPORARY", "another/secret", "session-token+/=="};
const Credentials kSlash{"tenant/user", "a third secret", ""};

class ClockAt : public FakeClock {
 public:
  explicit ClockAt(Clock::Wall start = kExampleTime) : shift_(start - FakeClock::wall_now()) {}
  Wall wall_now() const override { return FakeClock::wall_now() + shift_; }

 private:
  const Wall::duration shift_;
};

std::optional<Credentials> lookup(std::string_view access_key) {
  for (const Credentials& known : {kExample, kTemporary, kSlash})
    if (known.access_key == access_key) return known;
  return std::nullopt;
}

// A request that owns its text.
struct Message {
  std::string method = "GET";
  std::string path = "/";
  std::string query;
  Headers headers{{"host", kHost}};

  SignableRequest view() const { return {method, path, query, headers}; }
};

struct Fixture : testing::Test {
  ClockAt clock;
  Signer signer{"us-east-1", "s3", clock};
  SignatureVerifier verifier{{.region = "us-east-1", .service = "s3"}, lookup, clock};

  Message sign(Message message, std::string_view payload = kEmptyPayloadSha256,
               const Credentials& credentials = kExample) const {
    for (const auto field : signer.sign(message.view(), credentials, payload).headers)
      message.headers.add(field.name, field.value);
    return message;
  }
  Message presign(Message message, std::chrono::seconds expires = 24h,
                  const Credentials& credentials = kExample) const {
    message.query = signer.presign(message.view(), credentials, expires);
    return message;
  }
  // The name of the refusal; "" when accepted.
  std::string code(const Message& message) const {
    const auto verdict = verifier.verify(message.view());
    const auto* error = std::get_if<AuthError>(&verdict);
    return error == nullptr ? "" : std::string(error->code);
  }
  int status(const Message& message) const {
    const auto verdict = verifier.verify(message.view());
    const auto* error = std::get_if<AuthError>(&verdict);
    return error == nullptr ? 200 : error->http_status;
  }
};

std::string signature_in(std::string_view text) {
  const size_t at = text.rfind("Signature=");
  return at == std::string_view::npos ? "" : std::string(text.substr(at + 10));
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << text << " has no " << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

using DocumentedExamples = Fixture;

TEST_F(DocumentedExamples, GetWithRange) {
  const Message got =
      sign({.path = "/test.txt", .headers = {{"Host", kHost}, {"Range", "bytes=0-9"}}});
  EXPECT_EQ(got.headers.value_or("authorization", ""),
            "AWS4-HMAC-SHA256 "
            "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_EQ(code(got), "");
}

TEST_F(DocumentedExamples, PutOfAKeyThatNeedsEncoding) {
  const Message put = sign({.method = "PUT",
                            .path = "/test%24file.text",
                            .headers = {{"Host", kHost},
                                        {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                                        {"x-amz-storage-class", "REDUCED_REDUNDANCY"}}},
                           sha256_hex("Welcome to Amazon S3."));
  EXPECT_EQ(signature_in(put.headers.value_or("authorization", "")),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  EXPECT_EQ(code(put), "");
}

TEST_F(DocumentedExamples, QueryWithoutValue) {
  const Message got = sign({.query = "lifecycle", .headers = {{"Host", kHost}}});
  EXPECT_EQ(signature_in(got.headers.value_or("authorization", "")),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  EXPECT_EQ(code(got), "");
}

TEST_F(DocumentedExamples, ListOfObjects) {
  const Message got = sign({.query = "prefix=J&max-keys=2", .headers = {{"Host", kHost}}});
  EXPECT_EQ(signature_in(got.headers.value_or("authorization", "")),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
  EXPECT_EQ(code(got), "");
}

TEST_F(DocumentedExamples, PresignedUrl) {
  const Message got = presign({.path = "/test.txt"});
  EXPECT_EQ(got.query,
            "X-Amz-Algorithm=AWS4-HMAC-SHA256"
            "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
            "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
            "&X-Amz-Signature="
            "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
  EXPECT_EQ(code(got), "");
}

// 65 KiB of 'a' in chunks of 64 KiB, 1 KiB and nothing.
void expect_chain(ChunkSigner signer, const std::vector<std::string>& signatures) {
  for (size_t i = 0; i < 3; ++i) {
    const size_t sizes[] = {65536, 1024, 0};
    EXPECT_EQ(signer.sign_chunk(sha256_hex(std::string(sizes[i], 'a'))), signatures[i]);
  }
  if (signatures.size() == 3) return;
  EXPECT_EQ(signer.sign_trailers(sha256_hex("x-amz-checksum-crc32c:sOO8/Q==\n")), signatures[3]);
}

Message chunked_put(std::vector<std::pair<std::string_view, std::string_view>> more = {}) {
  Message put{.method = "PUT",
              .path = "/examplebucket/chunkObject.txt",
              .headers = {{"Host", "s3.amazonaws.com"},
                          {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                          {"Content-Encoding", "aws-chunked"},
                          {"x-amz-decoded-content-length", "66560"}}};
  for (const auto& [name, value] : more) put.headers.add(name, value);
  return put;
}

TEST_F(DocumentedExamples, ChunkedUpload) {
  const Message put = chunked_put({{"Content-Length", "66824"}});
  const auto parts = signer.sign(put.view(), kExample, kStreamingSignedPayload);
  EXPECT_EQ(parts.chunk_signer.signature(),
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
  const std::vector<std::string> signatures = {
      "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
      "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
      "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"};
  expect_chain(parts.chunk_signer, signatures);

  const auto verdict = verifier.verify(sign(put, kStreamingSignedPayload).view());
  const auto* verified = std::get_if<VerifiedRequest>(&verdict);
  ASSERT_NE(verified, nullptr);
  EXPECT_EQ(verified->payload, PayloadKind::kStreamingSigned);
  expect_chain(verified->chunk_signer, signatures);
}

TEST_F(DocumentedExamples, ChunkedUploadWithTrailer) {
  const Message put = chunked_put({{"x-amz-trailer", "x-amz-checksum-crc32c"}});
  const auto parts = signer.sign(put.view(), kExample, kStreamingSignedPayloadTrailer);
  EXPECT_EQ(parts.chunk_signer.signature(),
            "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
  expect_chain(parts.chunk_signer,
               {"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
                "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
                "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
                "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"});
}

using RoundTrip = Fixture;

TEST_F(RoundTrip, OddKeysAndQueriesAreAccepted) {
  for (const std::string key :
       {"plain", "with space", "a+b", "ünï/漢字", "a//b", "/a", "a/../b", "..", "a/./b", "a%2Fb",
        "a=b&c", "tilde~", "star*", "a?b#c", "back\\slash", "\xFF\xFE", "trailing/", "100%"})
    for (const std::string query :
         {"", "acl", "acl=", "prefix=a%2Bb%20c", "a=1&a=0&a=1", "a-b=1&a=2", "k%3D%26=v%3D%26"}) {
      const Message message{.path = "/bucket/" + percent_encode_path(key), .query = query};
      EXPECT_EQ(code(sign(message)), "") << key << " ? " << query;
      EXPECT_EQ(code(presign(message)), "") << key << " ? " << query;
    }
}

TEST_F(RoundTrip, PathsSentOtherwiseThanTheyWereSignedAreAccepted) {
  Message message = sign({.path = "/b/" + percent_encode_path("a+b(1)/ü")});
  message.path = "/b/a+b(1)/\xC3\xBC";  // not encoded
  EXPECT_EQ(code(message), "");
  message.path = "/%62/a%2bb%281%29/%c3%bc";  // lower case, and more than need be
  EXPECT_EQ(code(message), "");
  message.path = "/b/a b(1)/ü";
  EXPECT_EQ(code(message), "SignatureDoesNotMatch");
}

TEST_F(RoundTrip, APathSignedAsItWasSentIsAccepted) {
  // Our signer, like botocore, signs what is on the wire: a slash that is written as %2F too.
  EXPECT_EQ(code(sign({.path = "/b/a%2Fb%2f(c)", .query = "k=a+b(c)"})), "");
}

TEST_F(RoundTrip, PathAndQueryAreReadEachByItself) {
  // Signed with the path as sent and the query encoded anew, as the AWS CRT does.
  Message message = sign({.path = "/b/(c)", .query = "k=%2F%3A"});
  message.query = "k=/:";
  EXPECT_EQ(code(message), "");
}

TEST_F(RoundTrip, SpacesInHeaderValuesAndRepeatedHeadersAreAccepted) {
  const Message sent = sign({.headers = {{"host", kHost},
                                         {"x-amz-meta-a", "one  two \t three"},
                                         {"X-Amz-Meta-B", "2"},
                                         {"x-amz-meta-a", "4"}}});
  Message squeezed = sent;
  squeezed.headers.set("x-amz-meta-a", "one two three,4");
  EXPECT_EQ(code(sent), "");
  EXPECT_EQ(code(squeezed), "");
  squeezed.headers.set("x-amz-meta-a", "4,one two three");
  EXPECT_EQ(code(squeezed), "SignatureDoesNotMatch");
}

TEST_F(RoundTrip, HeadersThatProxiesChangeAreNotSigned) {
  Message message = sign({.headers = {{"host", kHost}, {"User-Agent", "x"}, {"Expect", "y"}}});
  message.headers.set("user-agent", "other");
  message.headers.remove("expect");
  message.headers.add("connection", "close");
  EXPECT_EQ(code(message), "");
}

TEST_F(RoundTrip, SessionTokens) {
  const Message message = sign({}, kUnsignedPayload, kTemporary);
  EXPECT_EQ(code(message), "");
  EXPECT_EQ(code(presign({}, 60s, kTemporary)), "");

  Message stripped = message;
  stripped.headers.remove("x-amz-security-token");
  EXPECT_EQ(code(stripped), "InvalidToken");
  Message other = message;
  other.headers.set("x-amz-security-token", "session-token+/=x");
  EXPECT_EQ(code(other), "InvalidToken");
  // Long-lived credentials have no token.
  EXPECT_EQ(code(sign({}, kUnsignedPayload, {kExample.access_key, kExample.secret_key, "t"})),
            "InvalidToken");
}

TEST_F(RoundTrip, AccessKeysMayHoldASlash) {
  const auto verdict = verifier.verify(sign({}, kUnsignedPayload, kSlash).view());
  ASSERT_TRUE(std::holds_alternative<VerifiedRequest>(verdict));
  EXPECT_EQ(std::get<VerifiedRequest>(verdict).access_key, "tenant/user");
  EXPECT_EQ(code(presign({}, 60s, kSlash)), "");
}

TEST_F(RoundTrip, TellsWhatIsInTheBody) {
  const std::string hash = sha256_hex("body");
  const std::vector<std::pair<std::string_view, PayloadKind>> kinds = {
      {hash, PayloadKind::kSha256},
      {kUnsignedPayload, PayloadKind::kUnsigned},
      {kStreamingSignedPayload, PayloadKind::kStreamingSigned},
      {kStreamingSignedPayloadTrailer, PayloadKind::kStreamingSignedTrailer},
      {kStreamingUnsignedPayloadTrailer, PayloadKind::kStreamingUnsignedTrailer}};
  for (const auto& [text, kind] : kinds) {
    const auto verdict = verifier.verify(sign({.method = "PUT"}, text).view());
    const auto* verified = std::get_if<VerifiedRequest>(&verdict);
    ASSERT_NE(verified, nullptr) << text;
    EXPECT_EQ(verified->payload, kind);
    EXPECT_EQ(verified->payload_sha256, kind == PayloadKind::kSha256 ? hash : "");
  }
  const auto verdict = verifier.verify(presign({}).view());
  EXPECT_EQ(std::get<VerifiedRequest>(verdict).payload, PayloadKind::kUnsigned);
  EXPECT_TRUE(std::get<VerifiedRequest>(verdict).is_presigned);
}

// A service other than S3: the path is normalised and encoded twice, the body's hash is not sent.
struct OtherService : Fixture {
  Signer other_signer{"eu-west-1", "sagemaker", clock};
  SignatureVerifier other_verifier{{}, lookup, clock};

  bool accepts(const std::string& signed_path, const std::string& sent_path,
               std::string_view body_sha256) const {
    Message message{.method = "POST", .path = signed_path};
    const auto parts = other_signer.sign(message.view(), kExample, sha256_hex("{}"));
    EXPECT_FALSE(parts.headers.contains("x-amz-content-sha256"));
    for (const auto field : parts.headers) message.headers.add(field.name, field.value);
    message.path = sent_path;
    return std::holds_alternative<VerifiedRequest>(
        other_verifier.verify(message.view(), body_sha256));
  }
};

TEST_F(OtherService, SignsTheBodyAndTheNormalPath) {
  const std::string body = sha256_hex("{}");
  EXPECT_TRUE(accepts("/", "/", body));
  EXPECT_TRUE(accepts("/a/./b/../c//d%20e/", "/a/c/d%20e/", body));
  EXPECT_FALSE(accepts("/a%20b", "/a%2520b", body));
  EXPECT_FALSE(accepts("/a", "/b", body));
  EXPECT_FALSE(accepts("/", "/", sha256_hex("{ }")));
}

struct Refused : Fixture {
  // The refusal of a good request after `change` to its authorization header.
  std::string changed(std::string_view from, std::string_view to) const {
    Message message = sign({});
    message.headers.set(
        "authorization",
        replaced(std::string(message.headers.value_or("authorization", "")), from, to));
    return code(message);
  }
  std::string changed_query(std::string_view from, std::string_view to) const {
    Message message = presign({});
    message.query = replaced(message.query, from, to);
    return code(message);
  }
};

TEST_F(Refused, RequestsWithoutASignature) {
  EXPECT_EQ(code({}), "MissingAuthenticationToken");
  EXPECT_EQ(status({}), 403);
}

TEST_F(Refused, OtherMechanisms) {
  EXPECT_EQ(changed("AWS4-HMAC-SHA256 ", "AWS4-ECDSA-P256-SHA256 "), "InvalidRequest");
  EXPECT_EQ(changed("AWS4-HMAC-SHA256 ", "AWS4-HMAC-SHA256"), "InvalidRequest");
  for (const std::string_view other : {"AWS AKIA:c2lnbmF0dXJl", "Basic dTpw", "Bearer x", ""})
    EXPECT_EQ(code({.headers = {{"host", kHost}, {"authorization", other}}}), "InvalidRequest");
}

TEST_F(Refused, TwoMechanismsAtOnce) {
  Message message = presign({});
  message.headers.add("authorization", "AWS4-HMAC-SHA256 Credential=...");
  EXPECT_EQ(code(message), "InvalidArgument");
}

TEST_F(Refused, MalformedAuthorizationHeaders) {
  const std::pair<std::string_view, std::string_view> changes[] = {
      {"Credential=", "Credentials="},
      {"Credential=", ""},
      {"SignedHeaders=", "signedheaders="},
      {", Signature=", ", Signature"},
      {", Signature=", ", Extra=1, Signature="},
      {", Signature=", ", Signature=0, Signature="},
      {", SignedHeaders=", " SignedHeaders="},
      {"Signature=", "Signature=0"},
      {"/20130524/", "/"},
      {"/20130524/", "/20130525/"},
      {"/us-east-1/", "/us-west-2/"},
      {"/us-east-1/", "//"},
      {"/s3/", "/sqs/"},
      {"/aws4_request", "/aws5_request"},
      {"AKIAIOSFODNN7EXAMPLE", ""},
      {"SignedHeaders=host;", "SignedHeaders="},
      {"SignedHeaders=host;", "SignedHeaders=Host;"},
      {"SignedHeaders=host;", "SignedHeaders=;host;"},
      {"SignedHeaders=host;", "SignedHeaders=host;host;"},
      {"SignedHeaders=host;", "SignedHeaders=x;host;"},
      {"SignedHeaders=host;", "SignedHeaders=ho st;host;"},
  };
  for (const auto& [from, to] : changes)
    EXPECT_EQ(changed(from, to), "AuthorizationHeaderMalformed") << from << " -> " << to;
  EXPECT_EQ(code({.headers = {{"host", kHost}, {"authorization", "AWS4-HMAC-SHA256"}}}),
            "AuthorizationHeaderMalformed");
}

TEST_F(Refused, TooManySignedHeaders) {
  std::string names = "SignedHeaders=";
  for (int i = 100; i < 300; ++i) names += "a" + std::to_string(i) + ";";
  EXPECT_EQ(changed("SignedHeaders=", names), "AuthorizationHeaderMalformed");
}

TEST_F(Refused, MalformedQueryAuthentication) {
  const std::pair<std::string_view, std::string_view> changes[] = {
      {"X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Algorithm=AWS4-HMAC-SHA1"},
      {"X-Amz-Algorithm=AWS4-HMAC-SHA256&", ""},
      {"X-Amz-Credential=", "X-Amz-Credentia1="},
      {"%2Faws4_request", ""},
      {"X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130524"},
      {"X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130230T000000Z"},
      {"X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130524T240000Z"},
      {"X-Amz-Date=20130524T000000Z", "X-Amz-Date=20130525T000000Z"},
      {"&X-Amz-Date=20130524T000000Z", ""},
      {"X-Amz-Expires=86400", "X-Amz-Expires=0"},
      {"X-Amz-Expires=86400", "X-Amz-Expires=-1"},
      {"X-Amz-Expires=86400", "X-Amz-Expires=604801"},
      {"X-Amz-Expires=86400", "X-Amz-Expires=1e3"},
      {"X-Amz-Expires=86400", "X-Amz-Expires="},
      {"X-Amz-Expires=86400", "X-Amz-Expires=99999999999999999999"},
      {"&X-Amz-Expires=86400", ""},
      {"X-Amz-Expires=86400", "X-Amz-Expires=86400&X-Amz-Expires=86400"},
      {"X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders="},
      {"X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=range"},
      {"X-Amz-Signature=", "X-Amz-Signature=A"},
      {"&X-Amz-Signature=", "&X-Amz-Signatur="},
      {"&X-Amz-Signature=", "&X-Amz-Security-Token=1&X-Amz-Security-Token=2&X-Amz-Signature="},
  };
  for (const auto& [from, to] : changes)
    EXPECT_EQ(changed_query(from, to), "AuthorizationQueryParametersError") << from << " -> " << to;
}

TEST_F(Refused, TargetsThatAreNotPercentEncoded) {
  Message message = sign({.path = "/a"});
  message.path = "/a%2";
  EXPECT_EQ(code(message), "InvalidURI");
  message.path = "/a";
  message.query = "a=%zz";
  EXPECT_EQ(code(message), "InvalidURI");
}

TEST_F(Refused, UnknownAccessKeys) {
  EXPECT_EQ(code(sign({}, kUnsignedPayload, {"AKIAUNKNOWN", kExample.secret_key, ""})),
            "InvalidAccessKeyId");
}

TEST_F(Refused, WrongSecrets) {
  const Message message = sign({}, kUnsignedPayload, {kExample.access_key, "wrong", ""});
  const auto verdict = verifier.verify(message.view());
  const auto* error = std::get_if<AuthError>(&verdict);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code, "SignatureDoesNotMatch");
  EXPECT_EQ(error->http_status, 403);
  EXPECT_TRUE(error->canonical_request.starts_with("GET\n/\n\nhost:")) << error->canonical_request;
  EXPECT_TRUE(error->string_to_sign.starts_with("AWS4-HMAC-SHA256\n20130524T000000Z\n"));
}

TEST_F(Refused, AnyChangeOfWhatWasSigned) {
  const Message good = sign({.method = "PUT", .path = "/b/k", .query = "a=1&b=2"});
  const std::vector<std::function<void(Message&)>> changes = {
      [](Message& m) { m.method = "GET"; },
      [](Message& m) { m.path = "/b/K"; },
      [](Message& m) { m.path = "/b//k"; },
      [](Message& m) { m.path = "/b/k/"; },
      [](Message& m) { m.path = "/b/./k"; },
      [](Message& m) { m.query = "a=1&b=3"; },
      [](Message& m) { m.query = "a=1"; },
      [](Message& m) { m.query = "a=1&b=2&c"; },
      [](Message& m) { m.query = "a=1&b=2&b=2"; },
      [](Message& m) { m.headers.set("host", "other"); },
      [](Message& m) { m.headers.remove("host"); },
      [](Message& m) { m.headers.add("host", "other"); },
      [](Message& m) { m.headers.set("x-amz-date", "20130524T000001Z"); },
      [](Message& m) { m.headers.set("x-amz-content-sha256", kUnsignedPayload); },
  };
  ASSERT_EQ(code(good), "");
  for (size_t i = 0; i < changes.size(); ++i) {
    Message message = good;
    changes[i](message);
    EXPECT_EQ(code(message), "SignatureDoesNotMatch") << "change " << i;
  }
}

TEST_F(Refused, AmzHeadersThatWereNotSigned) {
  Message message = sign({});
  message.headers.add("x-amz-acl", "public-read");
  EXPECT_EQ(code(message), "AccessDenied");
  message = presign({});
  message.headers.add("X-Amz-Copy-Source", "/b/k");
  EXPECT_EQ(code(message), "AccessDenied");
}

TEST_F(Refused, PayloadHashesThatAreNone) {
  EXPECT_EQ(code(sign({}, "unsigned-payload")), "InvalidArgument");
  EXPECT_EQ(code(sign({}, std::string(64, 'g'))), "InvalidArgument");
  EXPECT_EQ(code(sign({}, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD")), "InvalidArgument");
  Message message = sign({});
  message.headers.remove("x-amz-content-sha256");
  EXPECT_EQ(code(message), "InvalidRequest");
}

TEST_F(Refused, RequestsWithoutADate) {
  Message message = sign({});
  message.headers.remove("x-amz-date");
  EXPECT_EQ(code(message), "AccessDenied");
  message.headers.add("x-amz-date", "2013-05-24T00:00:00Z");
  EXPECT_EQ(code(message), "AccessDenied");
}

TEST_F(Refused, SkewedClocks) {
  const Message message = sign({});
  clock.advance(15min);
  EXPECT_EQ(code(message), "");
  clock.advance(1s);
  EXPECT_EQ(code(message), "RequestTimeTooSkewed");
  EXPECT_EQ(status(message), 403);

  ClockAt late(kExampleTime - 15min);
  EXPECT_TRUE(std::holds_alternative<VerifiedRequest>(
      SignatureVerifier({}, lookup, late).verify(message.view())));
  ClockAt too_late(kExampleTime - 15min - 1s);
  EXPECT_TRUE(std::holds_alternative<AuthError>(
      SignatureVerifier({}, lookup, too_late).verify(message.view())));
}

TEST_F(Refused, PresignedUrlsAfterAndBeforeTheirTime) {
  const Message message = presign({}, 60s);
  clock.advance(60s);
  EXPECT_EQ(code(message), "");
  clock.advance(1s);
  EXPECT_EQ(code(message), "AccessDenied");

  ClockAt early(kExampleTime - 16min);
  EXPECT_TRUE(std::holds_alternative<AuthError>(
      SignatureVerifier({}, lookup, early).verify(message.view())));
}

TEST_F(RoundTrip, TheDateHeaderIsReadWhereThereIsNoAmzDate) {
  // With a signature of another request: what matters is that its date was understood.
  for (const std::string_view date :
       {"Fri, 24 May 2013 00:00:00 GMT", "Fri, 24 May 2013 00:00:00 -0000", "20130524T000000Z"}) {
    Message message = sign({});
    message.headers.remove("x-amz-date");
    message.headers.add("date", date);
    EXPECT_EQ(code(message), "SignatureDoesNotMatch") << date;
    message.headers.set("date", "Fri, 24 May 2013 00:00:00 +0200");
    EXPECT_EQ(code(message), "AccessDenied");
  }
}

TEST(SignerAndVerifier, AreSharedByThreads) {
  ClockAt clock;
  const Signer signer("us-east-1", "s3", clock);
  const SignatureVerifier verifier({}, lookup, clock);
  std::atomic<int> accepted_count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        Message message{.path = "/" + std::to_string(i)};
        const auto parts = signer.sign(message.view(), i % 2 ? kExample : kSlash, kUnsignedPayload);
        for (const auto field : parts.headers) message.headers.add(field.name, field.value);
        accepted_count +=
            std::holds_alternative<VerifiedRequest>(verifier.verify(message.view())) ? 1 : 0;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(accepted_count, 800);
}

}  // namespace
}  // namespace yard
