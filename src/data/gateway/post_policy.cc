#include "gateway/post_policy.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "base/json.h"
#include "gateway/presigned_v2.h"
#include "net/encoding.h"
#include "net/http_message.h"

namespace yard::gateway {
namespace {

// S3's: what an uploader may leave out of the policy.
constexpr std::string_view kUncovered[] = {"x-amz-signature", "signature", "awsaccesskeyid",
                                           "policy", "file"};
constexpr std::string_view kIgnoredPrefix = "x-ignore-";
constexpr std::chrono::days kKeyAgeMax{7};  // of a derived signing key

S3Error denied(std::string message) {
  return S3Error(s3::kAccessDenied, std::move(message));
}

S3Error bad_policy(std::string_view why) {
  return S3Error(S3ErrorKind{"InvalidPolicyDocument", 400, ""},
                 fmt::format("Invalid Policy: {}", why));
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return lower;
}

// Of `format`, all of the text, in UTC.
std::optional<Clock::Wall> parse_utc(const std::string& text, const char* format) {
  tm fields = {};
  const char* end = ::strptime(text.c_str(), format, &fields);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&fields));
}

// "2015-12-30T12:00:00.000Z", the fraction left out or not.
std::optional<Clock::Wall> parse_expiration(std::string text) {
  if (const size_t dot = text.find('.'); dot != text.npos && text.ends_with('Z'))
    text = text.substr(0, dot) + "Z";
  return parse_utc(text, "%Y-%m-%dT%H:%M:%SZ");
}

S3Error unknown_key() {
  return S3Error(S3ErrorKind{"InvalidAccessKeyId", 403,
                             "The AWS Access Key Id you provided does not exist in our records."});
}

S3Error wrong_signature() {
  return S3Error(S3ErrorKind{"SignatureDoesNotMatch", 403,
                             "The request signature we calculated does not match the signature you "
                             "provided. Check your key and signing method."});
}

S3Status check_v2(const FormFields& fields, const Credentials& credentials) {
  if (fields.value_or("AWSAccessKeyId", "") != credentials.access_key) return unknown_key();
  const std::string ours = hmac_sha1_base64(credentials.secret_key, fields.value_or("policy", ""));
  if (!equals_in_constant_time(ours, fields.value_or("signature", ""))) return wrong_signature();
  return Ok{};
}

// "KEY/20151229/us-east-1/s3/aws4_request".
S3Status check_v4(const FormFields& fields, const Credentials& credentials, Clock::Wall now) {
  std::vector<std::string_view> scope;
  for (std::string_view rest = fields.value_or("x-amz-credential", "");;) {
    const size_t slash = rest.find('/');
    scope.push_back(rest.substr(0, slash));
    if (slash == rest.npos) break;
    rest.remove_prefix(slash + 1);
  }
  const std::string_view date = fields.value_or("x-amz-date", "");
  const auto signed_at = parse_utc(std::string(date), "%Y%m%dT%H%M%SZ");
  if (fields.value_or("x-amz-algorithm", "") != "AWS4-HMAC-SHA256" || scope.size() != 5 ||
      scope[3] != "s3" || scope[4] != "aws4_request" || !signed_at || !date.starts_with(scope[1]) ||
      scope[1].size() != 8)
    return S3Error(s3::kInvalidArgument,
                   "x-amz-algorithm, x-amz-credential or x-amz-date of the "
                   "form is malformed");
  if (scope[0] != credentials.access_key) return unknown_key();
  if (now - *signed_at > kKeyAgeMax || *signed_at - now > kClockSkewMax)
    return denied("The form was signed too long ago, or in the future.");
  const std::string ours = SigningKey::derive(credentials.secret_key, scope[1], scope[2], scope[3])
                               .sign(fields.value_or("policy", ""));
  if (!equals_in_constant_time(ours, fields.value_or("x-amz-signature", "")))
    return wrong_signature();
  return Ok{};
}

// One condition of a policy: {"acl": "private"}, ["eq", "$acl", "private"], ["starts-with",
// "$key", "user/"]; ["content-length-range", 1, 100].
struct Condition {
  std::string field;  // lower case
  std::string value;
  bool is_prefix = false;
};

struct Policy {
  std::vector<Condition> conditions;
  FileBounds bounds;
};

S3Status read_list(const Json& list, Policy& policy) {
  if (list.size() != 3 || !list[0].is_string()) return bad_policy("a condition is malformed");
  const std::string kind = lower_case(list[0].get<std::string>());
  if (kind == "content-length-range") {
    for (const size_t i : {1, 2})
      if (!list[i].is_number_unsigned()) return bad_policy("a content-length-range is no numbers");
    policy.bounds = {std::max(policy.bounds.size_bytes_min, list[1].get<uint64_t>()),
                     std::min(policy.bounds.size_bytes_max, list[2].get<uint64_t>())};
    return Ok{};
  }
  const bool is_known = kind == "eq" || kind == "starts-with";
  if (!is_known || !list[1].is_string() || !list[2].is_string())
    return bad_policy("a condition is malformed");
  const auto name = list[1].get<std::string>();
  if (!name.starts_with('$')) return bad_policy("a condition's field does not begin with '$'");
  policy.conditions.push_back(
      {lower_case(name.substr(1)), list[2].get<std::string>(), kind == "starts-with"});
  return Ok{};
}

S3Status read_condition(const Json& condition, Policy& policy) {
  if (condition.is_array()) return read_list(condition, policy);
  if (!condition.is_object()) return bad_policy("a condition is malformed");
  for (const auto& [name, value] : condition.items()) {
    if (!value.is_string()) return bad_policy("a condition's value is no text");
    policy.conditions.push_back({lower_case(name), value.get<std::string>(), false});
  }
  return Ok{};
}

S3Result<Policy> read_policy(const Json& document, Clock::Wall now) {
  const auto text = json_field<std::string>(document, "expiration", "policy");
  const auto expiration = text ? parse_expiration(*text) : std::nullopt;
  if (!expiration) return bad_policy("no expiration, or none that is a time");
  if (*expiration < now) return denied("Invalid according to Policy: Policy expired.");
  const auto conditions = document.find("conditions");
  if (conditions == document.end() || !conditions->is_array())
    return bad_policy("no list of conditions");
  Policy policy;
  for (const Json& condition : *conditions) YARD_TRY(read_condition(condition, policy));
  return policy;
}

bool holds(const Condition& condition, std::string_view value) {
  return condition.is_prefix ? value.starts_with(condition.value) : value == condition.value;
}

S3Status check_condition(const Condition& condition, const FormFields& fields,
                         std::string_view bucket) {
  const std::string_view value =
      condition.field == "bucket" ? bucket : fields.value_or(condition.field, "");
  if (holds(condition, value)) return Ok{};
  return denied(
      fmt::format("Invalid according to Policy: Policy Condition failed: [\"{}\", "
                  "\"${}\", \"{}\"]",
                  condition.is_prefix ? "starts-with" : "eq", condition.field, condition.value));
}

bool needs_condition(const std::string& field) {
  return std::ranges::find(kUncovered, field) == std::end(kUncovered) &&
         !field.starts_with(kIgnoredPrefix);
}

}  // namespace

std::optional<std::string_view> FormFields::find(std::string_view name) const {
  for (const auto& [field, value] : fields_)
    if (equals_ignoring_case(field, name)) return std::string_view(value);
  return std::nullopt;
}

std::string_view form_access_key(const FormFields& fields) {
  if (const auto key = fields.find("AWSAccessKeyId")) return *key;
  const std::string_view credential = fields.value_or("x-amz-credential", "");
  return credential.substr(0, credential.find('/'));
}

S3Status check_form_signature(const FormFields& fields, const Credentials& credentials,
                              Clock::Wall now) {
  if (!fields.find("policy")) return denied("Access Denied");
  if (fields.value_or("x-amz-security-token", "") != credentials.session_token)
    return S3Error(S3ErrorKind{"InvalidToken", 400, "The provided token is malformed or invalid."});
  if (fields.find("x-amz-signature")) return check_v4(fields, credentials, now);
  if (fields.find("signature")) return check_v2(fields, credentials);
  return denied("Access Denied");
}

S3Result<FileBounds> check_policy(const FormFields& fields, std::string_view bucket,
                                  Clock::Wall now) {
  const auto text = base64_decode(fields.value_or("policy", ""));
  if (!text) return bad_policy("it is no Base64");
  const auto document = parse_json(*text, "policy");
  if (!document || !document->is_object()) return bad_policy("it is no JSON object");
  YARD_ASSIGN(const Policy policy, read_policy(*document, now));
  for (const Condition& condition : policy.conditions)
    YARD_TRY(check_condition(condition, fields, bucket));
  for (const auto& [name, value] : fields) {
    const std::string lower = lower_case(name);
    if (needs_condition(lower) &&
        std::ranges::find(policy.conditions, lower, &Condition::field) == policy.conditions.end())
      return denied(fmt::format("Invalid according to Policy: Extra input fields: {}", lower));
  }
  return policy.bounds;
}

}  // namespace yard::gateway
