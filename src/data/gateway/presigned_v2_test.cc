#include "gateway/presigned_v2.h"

#include <gtest/gtest.h>

namespace yard::gateway {
namespace {

// The example of the Amazon S3 Developer Guide, "Query string request authentication alternative".
const Credentials kCredentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                               ""};
constexpr std::string_view kQuery =
    "AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&Expires="
    "1175139620";
const auto kInTime = std::chrono::system_clock::from_time_t(1175139620);

std::string code_of(std::string_view method, std::string_view path, std::string_view query,
                    std::string_view bucket = "/johnsmith", Clock::Wall now = kInTime,
                    const Headers& headers = {}) {
  const auto verified =
      verify_presigned_v2({method, path, query, headers}, bucket, kCredentials, now);
  const auto* refused = std::get_if<AuthError>(&verified);
  return refused == nullptr ? "accepted" : std::string(refused->code);
}

TEST(PresignedV2Test, TheGuidesExampleIsAccepted) {
  EXPECT_TRUE(is_presigned_v2(kQuery));
  EXPECT_FALSE(is_presigned_v2("X-AWSAccessKeyId=1"));
  EXPECT_EQ(code_of("GET", "/photos/puppy.jpg", kQuery), "accepted");
  EXPECT_EQ(code_of("GET", "/johnsmith/photos/puppy.jpg", kQuery, ""), "accepted");
}

TEST(PresignedV2Test, AnyOtherRequestIsRefused) {
  const std::string query(kQuery);
  EXPECT_EQ(code_of("PUT", "/photos/puppy.jpg", kQuery), "SignatureDoesNotMatch");
  EXPECT_EQ(code_of("GET", "/photos/puppy.jpx", kQuery), "SignatureDoesNotMatch");
  EXPECT_EQ(code_of("GET", "/photos/puppy.jpg", kQuery, "/other"), "SignatureDoesNotMatch");
  EXPECT_EQ(code_of("GET", "/photos/puppy.jpg", query + "&uploads"), "SignatureDoesNotMatch");
  EXPECT_EQ(code_of("GET", "/photos/puppy.jpg", query + "&x-amz-acl=private"),
            "SignatureDoesNotMatch");
  EXPECT_EQ(
      code_of("GET", "/photos/puppy.jpg", kQuery, "/johnsmith", kInTime, {{"X-Amz-Date", "1"}}),
      "SignatureDoesNotMatch");
  EXPECT_EQ(
      code_of("GET", "/photos/puppy.jpg", "AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Expires=1175139620"),
      "SignatureDoesNotMatch");
  EXPECT_EQ(
      code_of("GET", "/photos/puppy.jpg", kQuery, "/johnsmith", kInTime + std::chrono::seconds(1)),
      "AccessDenied");
  EXPECT_EQ(code_of("GET", "/p", "AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=x&Expires=soon"),
            "AccessDenied");
  EXPECT_EQ(code_of("GET", "/p", "AWSAccessKeyId=other&Signature=x&Expires=1175139620"),
            "InvalidAccessKeyId");
  EXPECT_EQ(code_of("GET", "/p", kQuery, "", kInTime, {{"Authorization", "AWS4-..."}}),
            "InvalidArgument");
  EXPECT_EQ(code_of("GET", "/p", "AWSAccessKeyId=%zz"), "InvalidURI");
}

}  // namespace
}  // namespace yard::gateway
