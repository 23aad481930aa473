#include "api/wire_route.h"

#include <gtest/gtest.h>

namespace yard::api {
namespace {

Headers signed_for(const std::string& service, const std::string& content_type = "") {
  Headers headers = {{"authorization", "AWS4-HMAC-SHA256 Credential=AK/20261130/us-east-1/" +
                                           service +
                                           "/aws4_request, SignedHeaders=host, Signature=0"}};
  if (!content_type.empty()) headers.set("content-type", content_type);
  return headers;
}

constexpr const char* kForm = "application/x-www-form-urlencoded; charset=utf-8";

TEST(WireRouteTest, TheTargetNamesServiceAndOperation) {
  Headers headers = signed_for("sagemaker");
  headers.set("x-amz-target", "SageMaker.CreateTrainingJob");
  const WireRoute route = route_of("POST", "/", "", headers);
  EXPECT_EQ(route.form, WireForm::kJson);
  EXPECT_EQ(route.service, "SageMaker");
  EXPECT_EQ(route.operation, "CreateTrainingJob");
  headers.set("x-amz-target", "nodot");
  EXPECT_EQ(route_of("POST", "/", "", headers).operation, "nodot");
}

TEST(WireRouteTest, TheCredentialsScopeComesBeforeThePath) {
  EXPECT_EQ(route_of("POST", "/", "", signed_for("sts", kForm)).form, WireForm::kQuery);
  EXPECT_EQ(route_of("POST", "/", "", signed_for("sts", kForm)).service, "sts");
  EXPECT_EQ(route_of("POST", "/123456789012/queue", "", signed_for("sqs", kForm)).form,
            WireForm::kQuery);
  EXPECT_EQ(route_of("GET", "/", "Action=GetCallerIdentity", signed_for("sts")).form,
            WireForm::kQuery);
  EXPECT_EQ(route_of("POST", "/endpoints/e/invocations", "", signed_for("sagemaker")).form,
            WireForm::kRest);
  EXPECT_EQ(route_of("PUT", "/b/k", "", signed_for("s3")).form, WireForm::kS3);
  EXPECT_EQ(route_of("POST", "/", "", signed_for("s3", kForm)).form, WireForm::kS3);
}

TEST(WireRouteTest, APresignedUrlIsForTheServiceInItsCredential) {
  EXPECT_EQ(
      route_of("GET", "/b/k", "X-Amz-Credential=AK%2F20261130%2Fus-east-1%2Fs3%2Faws4_request", {})
          .form,
      WireForm::kS3);
  EXPECT_EQ(scope_service({}, "X-Amz-Credential=AK%2F20261130%2Fr%2Fsts%2Faws4_request"), "sts");
}

TEST(WireRouteTest, WhatIsNotSignedByVersion4IsS3sButForForms) {
  EXPECT_EQ(route_of("GET", "/b/k", "AWSAccessKeyId=AK&Signature=x&Expires=1", {}).form,
            WireForm::kS3);
  EXPECT_EQ(route_of("POST", "/b", "", {{"content-type", "multipart/form-data; boundary=x"}}).form,
            WireForm::kS3);
  EXPECT_EQ(route_of("POST", "/", "", {{"content-type", kForm}}).form, WireForm::kQuery);
  for (const char* credential : {"AK", "AK/1/2", "////", ""})
    EXPECT_EQ(scope_service({{"authorization", std::string("AWS4 Credential=") + credential}}, ""),
              "")
        << credential;
}

}  // namespace
}  // namespace yard::api
