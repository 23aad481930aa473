#include "storage/s3_address.h"

#include <gtest/gtest.h>

namespace yard::storage {
namespace {

TEST(S3UrlTest, IsABucketAndAKeyAsItIsWritten) {
  const auto check = [](std::string_view url, std::string_view bucket, std::string_view key) {
    const auto parsed = parse_s3_url(url);
    ASSERT_TRUE(parsed) << url;
    EXPECT_EQ(parsed->bucket, bucket);
    EXPECT_EQ(parsed->key, key);
  };
  check("s3://", "", "");
  check("s3://b", "b", "");
  check("s3://b/", "b", "");
  check("s3://my.bucket-1/a b/%20+//c", "my.bucket-1", "a b/%20+//c");
  check("s3://b//k", "b", "/k");
  for (const char* bad : {"", "s3:", "s3:/b", "S3://b", "http://b/k", "s3:///k", "s3://a b/k",
                          "s3://../k", "s3://b%2f/k"})
    EXPECT_EQ(parse_s3_url(bad).error().code, Code::kInvalidArgument) << bad;
}

TEST(S3EndpointTest, IsAHostAndAPort) {
  EXPECT_EQ(parse_s3_endpoint("http://127.0.0.1:9000/", "r")->authority, "127.0.0.1:9000");
  EXPECT_EQ(parse_s3_endpoint("http://[::1]:9000", "r")->authority, "[::1]:9000");
  // As it stands in the Host header, which is signed.
  EXPECT_EQ(parse_s3_endpoint("https://s3.host:443", "r")->authority, "s3.host");
  EXPECT_EQ(parse_s3_endpoint("http://s3.host:80", "r")->authority, "s3.host");
  EXPECT_EQ(parse_s3_endpoint("http://s3.host:443", "r")->authority, "s3.host:443");
  EXPECT_EQ(parse_s3_endpoint("", "eu-west-1")->authority, "s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(parse_s3_endpoint("", "cn-north-1")->authority, "s3.cn-north-1.amazonaws.com.cn");
  EXPECT_TRUE(parse_s3_endpoint("", "eu-west-1")->is_aws);
  EXPECT_FALSE(parse_s3_endpoint("https://amazonaws.com.evil.example", "r")->is_aws);
  for (const char* bad : {"127.0.0.1:9000", "ftp://h", "http://", "http://h/path", "http://u@h",
                          "http://h?q", "http:// h", "http://h\r\nX: y"})
    EXPECT_EQ(parse_s3_endpoint(bad, "r").error().code, Code::kInvalidArgument) << bad;
}

TEST(S3AddressTest, TheBucketStandsInThePathOrBeforeTheHost) {
  const auto own = *parse_s3_endpoint("http://127.0.0.1:9000", "r");
  const auto aws = *parse_s3_endpoint("", "eu-west-1");
  const auto url = [](const S3Endpoint& endpoint, S3AddressStyle style, std::string_view bucket,
                      std::string_view key) {
    return s3_address(endpoint, style, bucket, key).url("");
  };
  EXPECT_EQ(url(own, S3AddressStyle::kAuto, "b", "a b/é"), "http://127.0.0.1:9000/b/a%20b/%C3%A9");
  EXPECT_EQ(url(own, S3AddressStyle::kAuto, "b", ""), "http://127.0.0.1:9000/b");
  EXPECT_EQ(url(own, S3AddressStyle::kAuto, "", ""), "http://127.0.0.1:9000/");
  EXPECT_EQ(url(own, S3AddressStyle::kVirtualHost, "b", "k"), "http://b.127.0.0.1:9000/k");
  EXPECT_EQ(url(aws, S3AddressStyle::kAuto, "b", "k"), "https://b.s3.eu-west-1.amazonaws.com/k");
  EXPECT_EQ(url(aws, S3AddressStyle::kAuto, "b", ""), "https://b.s3.eu-west-1.amazonaws.com/");
  // The certificate covers no further dot.
  EXPECT_EQ(url(aws, S3AddressStyle::kAuto, "b.c", "k"),
            "https://s3.eu-west-1.amazonaws.com/b.c/k");
  EXPECT_EQ(url(aws, S3AddressStyle::kPath, "b", "../k//"),
            "https://s3.eu-west-1.amazonaws.com/b/../k//");
  EXPECT_EQ(s3_address(own, S3AddressStyle::kAuto, "b", "k").url("x=1"),
            "http://127.0.0.1:9000/b/k?x=1");
}

TEST(S3AddressTest, AnEndpointWithAPortThatIsNoneIsRefused) {
  for (const char* url : {"http://h:0", "http://h:65536", "http://h:", "http://[::1]:99999"}) {
    const auto endpoint = parse_s3_endpoint(url, "us-east-1");
    ASSERT_FALSE(endpoint) << url;
    EXPECT_NE(endpoint.error().message.find("port"), std::string::npos);
  }
  for (const char* url : {"http://h:65535", "http://[::1]", "http://[::1]:9000"})
    EXPECT_TRUE(parse_s3_endpoint(url, "us-east-1")) << url;
}

}  // namespace
}  // namespace yard::storage
