// Signs, verifies and decodes what test_sigv4.py gives it: a JSON object on each line of the input,
// one on each line of the output. "op" says which; bytes are hexadecimal.
#include <chrono>
#include <iostream>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/json.h"
#include "net/aws_chunked.h"
#include "net/checksums.h"
#include "net/encoding.h"
#include "net/sigv4.h"

namespace yard {
namespace {

class ClockAt : public Clock {
 public:
  explicit ClockAt(int64_t unix_seconds) : now_(std::chrono::seconds(unix_seconds)) {}
  Monotonic now() const override { return {}; }
  Wall wall_now() const override { return now_; }
  bool sleep_for(std::chrono::nanoseconds, const StopToken&) override { return true; }

 private:
  const Wall now_;
};

std::string text(const Json& in, const char* key) {
  return in.value(key, std::string());
}

Headers headers_of(const Json& in) {
  Headers headers;
  for (const Json& line : in.value("headers", Json::array()))
    headers.add(line[0].get<std::string>(), line[1].get<std::string>());
  return headers;
}

Json json_of(const Headers& headers) {
  Json lines = Json::array();
  for (const auto field : headers)
    lines.push_back({std::string(field.name), std::string(field.value)});
  return lines;
}

Credentials credentials_of(const Json& in) {
  return {text(in, "access_key"), text(in, "secret_key"), text(in, "session_token")};
}

// The fields that every op about a request has.
struct Input {
  explicit Input(const Json& in)
      : method(text(in, "method")),
        path(text(in, "path")),
        query(text(in, "query")),
        headers(headers_of(in)),
        clock(in.value("now", int64_t{0})),
        credentials(credentials_of(in)) {}
  SignableRequest request() const { return {method, path, query, headers}; }

  std::string method, path, query;
  Headers headers;
  ClockAt clock;
  Credentials credentials;
};

Json error_of(const AuthError& error) {
  return {{"code", error.code},
          {"message", error.message},
          {"canonical_request", error.canonical_request}};
}

std::variant<VerifiedRequest, AuthError> verdict_of(const Json& in, const Input& input) {
  const auto lookup = [&](std::string_view access_key) {
    return access_key == input.credentials.access_key ? std::optional(input.credentials)
                                                      : std::nullopt;
  };
  const SignatureVerifier verifier({text(in, "region"), text(in, "service")}, lookup, input.clock);
  return verifier.verify(input.request(),
                         in.value("body_sha256", std::string(kEmptyPayloadSha256)));
}

Json verify(const Json& in) {
  const Input input(in);
  const auto verdict = verdict_of(in, input);
  if (const auto* error = std::get_if<AuthError>(&verdict)) return error_of(*error);
  const auto& verified = std::get<VerifiedRequest>(verdict);
  return {{"code", ""},
          {"payload_sha256", verified.payload_sha256},
          {"payload", static_cast<int>(verified.payload)}};
}

Json sign(const Json& in) {
  const Input input(in);
  const Signer signer(text(in, "region"), text(in, "service"), input.clock);
  const auto parts = signer.sign(input.request(), input.credentials, text(in, "payload"));
  return {{"headers", json_of(parts.headers)}, {"signature", parts.chunk_signer.signature()}};
}

Json presign(const Json& in) {
  const Input input(in);
  const Signer signer(text(in, "region"), text(in, "service"), input.clock);
  return {{"query", signer.presign(input.request(), input.credentials,
                                   std::chrono::seconds(in.at("expires").get<int64_t>()))}};
}

// The request's body, taken as the request says; in pieces of "piece_bytes".
Json decode(const Json& in) {
  const Input input(in);
  const auto verdict = verdict_of(in, input);
  if (const auto* error = std::get_if<AuthError>(&verdict)) return error_of(*error);
  const auto options = aws_chunked_options(std::get<VerifiedRequest>(verdict), input.headers);
  if (const auto* error = std::get_if<AuthError>(&options)) return error_of(*error);

  AwsChunkedDecoder decoder(std::get<AwsChunkedOptions>(options));
  const std::string body = hex_decode(text(in, "body")).value_or("");
  const size_t piece_bytes = in.value("piece_bytes", body.size() + 1);
  std::string decoded;
  for (size_t at = 0; at < body.size(); at += piece_bytes) {
    auto piece = bytes_of(std::string_view(body).substr(at, piece_bytes));
    while (!piece.empty()) {
      const auto bytes = decoder.next(piece);
      if (!bytes) return {{"code", decoder.error_code()}};
      decoded.append(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    }
  }
  const std::string_view code = decoder.finish() ? "" : decoder.error_code();
  return {{"code", code},
          {"bytes", hex_encode(bytes_of(decoded))},
          {"trailers", json_of(decoder.trailers())}};
}

Json checksum(const Json& in) {
  const auto algorithm = parse_checksum_algorithm(text(in, "algorithm"));
  const auto bytes = hex_decode(text(in, "bytes"));
  if (!algorithm || !bytes) return {{"code", "InvalidArgument"}};
  return {{"base64", checksum_base64(*algorithm, bytes_of(*bytes))}};
}

Json answer(const Json& in) {
  const std::string op = text(in, "op");
  if (op == "verify") return verify(in);
  if (op == "sign") return sign(in);
  if (op == "presign") return presign(in);
  if (op == "decode") return decode(in);
  if (op == "checksum") return checksum(in);
  return {{"code", "unknown op " + op}};
}

}  // namespace
}  // namespace yard

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto in = yard::parse_json(line, "input");
    if (!in) {
      std::cerr << in.error().message << "\n";
      return 1;
    }
    // An invalid byte sequence in an answer is shown, not thrown about.
    std::cout << yard::answer(*in).dump(-1, ' ', false, yard::Json::error_handler_t::replace)
              << "\n";
  }
  return 0;
}
