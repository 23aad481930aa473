#include "gateway/router.h"

#include <gtest/gtest.h>

#include <tuple>

namespace yard::gateway {
namespace {

RoutableRequest request(std::string_view method, std::string_view target,
                        std::string_view host = "h") {
  const size_t mark = target.find('?');
  return {.method = method,
          .host = host,
          .raw_path = target.substr(0, mark),
          .raw_query = mark == target.npos ? "" : target.substr(mark + 1)};
}

TEST(RouterTest, EveryOperationIsFoundByItsMethodAndParameters) {
  for (const auto& [method, target, operation] :
       std::initializer_list<std::tuple<const char*, const char*, Operation>>{
           {"GET", "/", Operation::kListBuckets},
           {"GET", "/?x-id=ListBuckets", Operation::kListBuckets},
           {"PUT", "/b", Operation::kCreateBucket},
           {"PUT", "/b/", Operation::kCreateBucket},
           {"HEAD", "/b", Operation::kHeadBucket},
           {"DELETE", "/b", Operation::kDeleteBucket},
           {"GET", "/b?location", Operation::kGetBucketLocation},
           {"GET", "/b?policy", Operation::kGetBucketSetting},
           {"DELETE", "/b?cors", Operation::kDeleteBucketSetting},
           {"GET", "/b?notification=", Operation::kGetNotification},
           {"PUT", "/b?notification", Operation::kPutNotification},
           {"GET", "/b", Operation::kListObjects},
           {"GET", "/b/?prefix=a", Operation::kListObjects},
           {"GET", "/b?list-type=2", Operation::kListObjectsV2},
           {"GET", "/b?uploads", Operation::kListUploads},
           {"GET", "/b?versions&prefix=a", Operation::kListVersions},
           {"POST", "/b", Operation::kPostObject},
           {"POST", "/b/", Operation::kPostObject},
           {"GET", "/b/k?attributes", Operation::kGetObjectAttributes},
           {"POST", "/b?delete", Operation::kDeleteObjects},
           {"GET", "/b/k", Operation::kGetObject},
           {"HEAD", "/b/k", Operation::kHeadObject},
           {"GET", "/b/k?tagging", Operation::kGetObjectSetting},
           {"PUT", "/b/k", Operation::kPutObject},
           {"DELETE", "/b/k", Operation::kDeleteObject},
           {"POST", "/b/k?uploads", Operation::kCreateUpload},
           {"PUT", "/b/k?uploadId=u&partNumber=1", Operation::kUploadPart},
           {"GET", "/b/k?uploadId=u", Operation::kListParts},
           {"POST", "/b/k?uploadId=u", Operation::kCompleteUpload},
           {"DELETE", "/b/k?uploadId=u", Operation::kAbortUpload}}) {
    const auto found = route(request(method, target), "");
    ASSERT_TRUE(found) << method << " " << target;
    EXPECT_EQ(found->operation, operation) << method << " " << target;
  }
  RoutableRequest copy = request("PUT", "/b/k");
  copy.has_copy_source = true;
  EXPECT_EQ(route(copy, "")->operation, Operation::kCopyObject);
  copy.raw_query = "uploadId=u&partNumber=1";
  EXPECT_EQ(route(copy, "")->operation, Operation::kUploadPartCopy);
}

TEST(RouterTest, AKeyIsWhatStandsBehindTheBucketDecodedOnce) {
  for (const auto& [path, key] :
       std::initializer_list<std::pair<const char*, const char*>>{{"/b/a%2Fb", "a/b"},
                                                                  {"/b//a", "/a"},
                                                                  {"/b/..", ".."},
                                                                  {"/b/../../etc", "../../etc"},
                                                                  {"/b/a+b%20c%2B", "a+b c+"},
                                                                  {"/b/%2525", "%25"},
                                                                  {"/b/a/", "a/"}})
    EXPECT_EQ(route(request("GET", path), "")->key, key) << path;
}

TEST(RouterTest, ABucketMayStandInTheHost) {
  const auto found = route(request("GET", "/k/l", "my.bucket.s3.local:9000"), "s3.local");
  EXPECT_EQ(found->bucket, "my.bucket");
  EXPECT_EQ(found->key, "k/l");
  EXPECT_EQ(route(request("GET", "/", "b.S3.local"), "s3.local")->operation,
            Operation::kListObjects);
  for (const char* host : {"s3.local", "xs3.local", "", "[::1]:80", "other", ".s3.local"})
    EXPECT_EQ(route(request("GET", "/p/k", host), "s3.local")->bucket, "p") << host;
  EXPECT_EQ(route(request("GET", "/p/k", "b.s3.local"), "")->bucket, "p");
}

TEST(RouterTest, WhatCannotBeIsRefusedByItsName) {
  const auto code = [](std::string_view method, std::string_view target) {
    const auto found = route(request(method, target), "");
    return found ? "none" : found.error().code;
  };
  EXPECT_EQ(code("GET", "/b/%zz"), "InvalidURI");
  EXPECT_EQ(code("GET", "/b/%ff"), "InvalidURI");
  EXPECT_EQ(code("GET", "*"), "InvalidURI");
  EXPECT_EQ(code("GET", "/b/k?a=%"), "InvalidURI");
  EXPECT_EQ(code("PUT", "/b/" + std::string(1025, 'x')), "KeyTooLongError");
  EXPECT_EQ(code("PUT", "/b/" + std::string(1024, 'x')), "none");
  EXPECT_EQ(code("PATCH", "/b/k"), "MethodNotAllowed");
  EXPECT_EQ(code("PATCH", "/b"), "MethodNotAllowed");
  EXPECT_EQ(code("DELETE", "/"), "MethodNotAllowed");
  EXPECT_EQ(code("POST", "/b/k"), "NotImplemented");
  EXPECT_EQ(code("GET", "/b?attributes"), "NotImplemented");
  EXPECT_EQ(code("GET", "/b/k?versions"), "NotImplemented");
  EXPECT_EQ(code("PUT", "/b?versioning"), "NotImplemented");
  EXPECT_EQ(code("POST", "/b/k?select&select-type=2"), "NotImplemented");
  EXPECT_EQ(code("PUT", "/b/k?tagging"), "NotImplemented");
}

}  // namespace
}  // namespace yard::gateway
