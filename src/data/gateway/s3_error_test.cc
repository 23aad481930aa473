#include "gateway/s3_error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace yard::gateway {
namespace {

TEST(S3ErrnoTest, WhatCannotPassIsNotAnswered5xxThatClientsRepeat) {
  for (const int denied : {EACCES, EPERM, EROFS}) {
    EXPECT_EQ(s3_errno("f", denied).code, "AccessDenied");
    EXPECT_EQ(s3_errno("f", denied).http_status, 403);
  }
  for (const int full : {ENOSPC, EDQUOT})
    EXPECT_EQ(s3_errno("f", full).code, "InsufficientStorage");
  EXPECT_EQ(s3_errno("f", EIO).code, "InternalError");
}

}  // namespace
}  // namespace yard::gateway
