#include "base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>

namespace yard {
namespace {

Result<int> parse_positive(int value) {
  if (value <= 0) return Error{Code::kInvalidArgument, "not positive"};
  return value;
}

Result<int> doubled(int value) {
  YARD_ASSIGN(const int positive, parse_positive(value));
  return positive * 2;
}

Status check(int value) {
  YARD_TRY(parse_positive(value));
  return Ok{};
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(*parse_positive(3), 3);
  const auto failed = parse_positive(-1);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kInvalidArgument);
}

TEST(Result, AssignAndTryPassTheErrorOn) {
  EXPECT_EQ(*doubled(4), 8);
  EXPECT_EQ(doubled(0).error().message, "not positive");
  EXPECT_TRUE(check(1));
  EXPECT_FALSE(check(0));
}

TEST(Result, MovesAValueThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(9);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 9);
}

TEST(Error, WhilePrependsWhatWeWereDoing) {
  const auto error = Error{Code::kCorrupt, "bad magic"}.while_("reading a.tar");
  EXPECT_EQ(error.message, "reading a.tar: bad magic");
  EXPECT_EQ(error.code, Code::kCorrupt);
}

TEST(ErrnoError, CodeSaysWhatTheCallerCanDo) {
  const auto code = [](int errno_value) { return errno_error("x", errno_value).code; };
  EXPECT_EQ(code(ENOENT), Code::kNotFound);
  EXPECT_EQ(code(EACCES), Code::kInvalidArgument);
  EXPECT_EQ(code(ENOSPC), Code::kExhausted);
  EXPECT_EQ(code(ECONNRESET), Code::kUnavailable);
  EXPECT_EQ(code(ETIMEDOUT), Code::kDeadlineExceeded);
  EXPECT_EQ(code(ECANCELED), Code::kCancelled);
  EXPECT_EQ(code(EIO), Code::kInternal);
  EXPECT_EQ(errno_error("/data/x.tar", ENOENT).message, "/data/x.tar: No such file or directory");
}

TEST(Code, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code)
    names.insert(to_string(static_cast<Code>(code)));
  EXPECT_EQ(names.size(), 8u);
}

TEST(ResultDeathTest, WrongAlternativeAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*parse_positive(0), "not positive");
  EXPECT_DEATH((void)parse_positive(1).error(), "not an error");
}

}  // namespace
}  // namespace yard
