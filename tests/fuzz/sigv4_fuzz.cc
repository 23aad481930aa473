// Lines of input make a request: method, path, query, then "name: value" headers. As it stands it
// must be refused, for nobody knows the secret; signed by us it must be accepted.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/sigv4.h"
#include "net/uri.h"

namespace yard {
namespace {

class FixedClock : public Clock {
 public:
  Monotonic now() const override { return {}; }
  Wall wall_now() const override {
    return Wall(std::chrono::sys_days(std::chrono::May / 24 / 2013));
  }
  bool sleep_for(std::chrono::nanoseconds, const StopToken&) override { return true; }
};

const FixedClock fixed_clock;
const Credentials credentials{"AKIAIOSFODNN7EXAMPLE", "a secret that no input can guess", ""};

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

Headers read_headers(std::string_view text) {
  Headers headers;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const size_t colon = std::min(line.find(':'), line.size());
    headers.add(line.substr(0, colon), line.substr(std::min(colon + 1, line.size())));
  }
  return headers;
}

const SignatureVerifier& verifier() {
  static const SignatureVerifier verifier(
      {},
      [](std::string_view key) {
        return key == credentials.access_key ? std::optional(credentials) : std::nullopt;
      },
      fixed_clock);
  return verifier;
}

// What a signer may be given: a well-formed request that is not signed yet.
bool may_be_signed(const SignableRequest& request) {
  const auto query = parse_query(request.raw_query);
  if (!query || !percent_decode(request.raw_path) || !request.headers.contains("host"))
    return false;
  for (const auto& pair : *query)
    if (pair.name.starts_with("X-Amz-") || equals_ignoring_case(pair.name, "x-amz-content-sha256"))
      return false;
  if (request.headers.size() > 100) return false;
  for (const auto field : request.headers) {
    if (!is_header_name(field.name) || !is_header_value(field.value)) return false;
    for (const std::string_view added :
         {"authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"})
      if (equals_ignoring_case(field.name, added)) return false;
  }
  return true;
}

void check_signed(const SignableRequest& request, std::string_view service) {
  const Signer signer("us-east-1", std::string(service), fixed_clock);
  Headers headers = request.headers;
  for (const auto field : signer.sign(request, credentials, kEmptyPayloadSha256).headers)
    headers.add(field.name, field.value);
  YARD_CHECK(std::holds_alternative<VerifiedRequest>(
      verifier().verify({request.method, request.raw_path, request.raw_query, headers})));

  const std::string query = signer.presign(request, credentials, std::chrono::seconds(1));
  YARD_CHECK(std::holds_alternative<VerifiedRequest>(
      verifier().verify({request.method, request.raw_path, query, request.headers})));
}

}  // namespace
}  // namespace yard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view method = next_line(text), path = next_line(text), query = next_line(text);
  const Headers headers = read_headers(text);
  const SignableRequest request{method, path, query, headers};
  YARD_CHECK(std::holds_alternative<AuthError>(verifier().verify(request)));
  if (!may_be_signed(request)) return 0;
  check_signed(request, "s3");
  check_signed(request, "sagemaker");
  return 0;
}
