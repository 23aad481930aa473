#include "gateway/post_policy.h"

#include <gtest/gtest.h>

#include "gateway/presigned_v2.h"
#include "net/encoding.h"

namespace yard::gateway {
namespace {

using namespace std::chrono_literals;

const Credentials kCredentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                               ""};
// 2015-12-29T00:00:00Z.
const Clock::Wall kNow{std::chrono::seconds(1451347200)};

FormFields form(const std::string& policy,
                const std::vector<std::pair<std::string, std::string>>& more = {}) {
  FormFields fields;
  fields.add("Policy", base64_encode(bytes_of(policy)));
  for (const auto& [name, value] : more) fields.add(name, value);
  return fields;
}

// The example of AWS's documentation: "Browser-Based Uploads Using HTTP POST (AWS Signature
// Version 4)", its policy in Base64 and the signature.
constexpr const char* kExamplePolicy =
    "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6IFsNCiAgICB7"
    "ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRrZXkiLCAidXNlci91"
    "c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25fcmVkaXJlY3Qi"
    "OiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwi"
    "fSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAgeyJ4LWFtei1tZXRh"
    "LXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVuY3J5cHRpb24iOiAiQUVT"
    "MjU2In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNy"
    "ZWRlbnRpYWwiOiAiQUtJQUlPU0ZPRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxdWVzdCJ9"
    "LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy1TSEEyNTYifSwNCiAgICB7IngtYW16LWRhdGUiOiAi"
    "MjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9";
constexpr const char* kExampleSignature =
    "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e";

FormFields example(const std::string& signature = kExampleSignature) {
  FormFields fields;
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::string>>{
           {"key", "user/user1/a.png"},
           {"acl", "public-read"},
           {"success_action_redirect",
            "http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html"},
           {"Content-Type", "image/jpeg"},
           {"x-amz-meta-uuid", "14365123651274"},
           {"x-amz-server-side-encryption", "AES256"},
           {"X-Amz-Credential", "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request"},
           {"X-Amz-Algorithm", "AWS4-HMAC-SHA256"},
           {"X-Amz-Date", "20151229T000000Z"},
           {"x-amz-meta-tag", ""},
           {"Policy", kExamplePolicy},
           {"X-Amz-Signature", signature}})
    fields.add(name, value);
  return fields;
}

TEST(PostPolicyTest, TheExampleOfTheDocumentationIsAccepted) {
  EXPECT_TRUE(check_form_signature(example(), kCredentials, kNow));
  const auto bounds = check_policy(example(), "sigv4examplebucket", kNow);
  ASSERT_TRUE(bounds) << bounds.error().message;
  EXPECT_EQ(bounds->size_bytes_max, UINT64_MAX);
}

TEST(PostPolicyTest, WhatIsNotSignedByAKnownKeyIsRefused) {
  const auto code = [](const FormFields& fields, const Credentials& credentials, Clock::Wall now) {
    const auto checked = check_form_signature(fields, credentials, now);
    return checked ? "none" : checked.error().code;
  };
  std::string wrong = kExampleSignature;
  wrong[0] = '9';
  EXPECT_EQ(code(example(wrong), kCredentials, kNow), "SignatureDoesNotMatch");
  EXPECT_EQ(code(example(""), kCredentials, kNow), "SignatureDoesNotMatch");
  EXPECT_EQ(code(example(), {"AKIAIOSFODNN7EXAMPLE", "another", ""}, kNow),
            "SignatureDoesNotMatch");
  EXPECT_EQ(code(example(), {"ANOTHER", kCredentials.secret_key, ""}, kNow), "InvalidAccessKeyId");
  EXPECT_EQ(code(example(), kCredentials, kNow + 24h * 8), "AccessDenied");
  EXPECT_EQ(code(example(), kCredentials, kNow - 1h), "AccessDenied");
  EXPECT_EQ(code(form("{}"), kCredentials, kNow), "AccessDenied");
  EXPECT_EQ(code({}, kCredentials, kNow), "AccessDenied");
  EXPECT_EQ(code(form("{}", {{"x-amz-signature", "x"}}), kCredentials, kNow), "InvalidArgument");
  EXPECT_EQ(code(form("{}", {{"x-amz-security-token", "x"}}), kCredentials, kNow), "InvalidToken");
}

TEST(PostPolicyTest, ASignatureOfVersion2IsAccepted) {
  const std::string policy = base64_encode(bytes_of("{}"));
  const auto fields = [&](const std::string& signature) {
    return form("{}", {{"AWSAccessKeyId", kCredentials.access_key}, {"signature", signature}});
  };
  EXPECT_TRUE(check_form_signature(fields(hmac_sha1_base64(kCredentials.secret_key, policy)),
                                   kCredentials, kNow));
  EXPECT_FALSE(
      check_form_signature(fields(hmac_sha1_base64("another", policy)), kCredentials, kNow));
  EXPECT_FALSE(check_form_signature(fields(""), kCredentials, kNow));
}

std::string policy_of(const std::string& conditions,
                      const std::string& expiration = "2015-12-29T00:00:01Z") {
  return R"({"expiration": ")" + expiration + R"(", "conditions": [)" + conditions + "]}";
}

// The message for a form with the key "user/a" and the field "acl".
std::string refusal(const std::string& policy) {
  const auto checked =
      check_policy(form(policy, {{"Key", "user/a"}, {"acl", "private"}}), "b", kNow);
  return checked ? "none" : checked.error().code + ": " + checked.error().message;
}

TEST(PostPolicyTest, EveryConditionHasToHoldAndEveryFieldToHaveOne) {
  const std::string acl = R"(, {"ACL": "private"})";
  EXPECT_EQ(refusal(policy_of(R"(["starts-with", "$key", "user/"])" + acl)), "none");
  EXPECT_EQ(refusal(policy_of(R"(["starts-with", "$key", ""])" + acl)), "none");
  EXPECT_EQ(refusal(policy_of(R"(["eq", "$Key", "user/a"], {"bucket": "b"})" + acl)), "none");
  for (const char* conditions :
       {R"(["eq", "$key", "user/"])", R"({"key": "user/"})", R"(["starts-with", "$key", "other/"])",
        R"(["starts-with", "$key", "user/"], {"bucket": "c"})",
        R"(["starts-with", "$key", "user/"], {"x-amz-meta-a": "1"})", ""})
    EXPECT_TRUE(refusal(policy_of(conditions + (*conditions ? acl : acl.substr(1))))
                    .starts_with("AccessDenied: Invalid according to Policy"))
        << conditions;
  EXPECT_EQ(refusal(policy_of(R"(["starts-with", "$key", ""])")),
            "AccessDenied: Invalid according to Policy: Extra input fields: acl");
  EXPECT_EQ(refusal(policy_of(acl.substr(1), "2015-12-28T23:59:59.000Z")),
            "AccessDenied: Invalid according to Policy: Policy expired.");
}

TEST(PostPolicyTest, TheFilesSizeIsBoundedByEachRange) {
  const auto bounds = check_policy(
      form(policy_of(R"(["content-length-range", 5, 100], ["content-length-range", 1, 50])")), "b",
      kNow);
  ASSERT_TRUE(bounds);
  EXPECT_EQ(bounds->size_bytes_min, 5u);
  EXPECT_EQ(bounds->size_bytes_max, 50u);
}

TEST(PostPolicyTest, WhatIsNoPolicyIsRefused) {
  for (const std::string& policy : std::vector<std::string>{
           "not json", "[]", "{}", R"({"expiration": 5})",
           std::string(R"({"expiration": "tomorrow", "conditions": []})"),
           std::string(R"({"expiration": "2015-12-29T00:00:01Z"})"), policy_of("5"),
           policy_of("[]"), policy_of(R"(["eq", "key", "x"])"),
           policy_of(R"(["like", "$key", "x"])"), policy_of(R"(["eq", "$key", 5])"),
           policy_of(R"({"key": 5})"), policy_of(R"(["content-length-range", "1", "2"])"),
           policy_of(R"(["content-length-range", -1, 2])")})
    EXPECT_TRUE(refusal(policy).starts_with("InvalidPolicyDocument")) << policy << refusal(policy);
  FormFields fields;
  fields.add("policy", "no base64!");
  EXPECT_EQ(check_policy(fields, "b", kNow).error().code, "InvalidPolicyDocument");
}

}  // namespace
}  // namespace yard::gateway
