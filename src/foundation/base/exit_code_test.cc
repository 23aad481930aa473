#include "base/exit_code.h"

#include <gtest/gtest.h>

#include <csignal>
#include <set>

namespace yard {
namespace {

TEST(ExitCode, EveryCodeHasItsOwnAndNoneIsSuccess) {
  std::set<int> codes;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code)
    codes.insert(exit_code_of(static_cast<Code>(code)));
  EXPECT_EQ(codes, (std::set<int>{2, 3, 4, 5, 6, 7, 8, 70}));
}

TEST(MeaningOfExit, OnlyLostPeersAndSignalsAreWorthARestart) {
  const auto meaning = [](Code code) { return meaning_of_exit(exit_code_of(code), 0); };
  EXPECT_EQ(meaning_of_exit(0, 0), ExitMeaning::kSucceeded);
  EXPECT_EQ(meaning(Code::kUnavailable), ExitMeaning::kRetryable);
  EXPECT_EQ(meaning(Code::kDeadlineExceeded), ExitMeaning::kRetryable);
  EXPECT_EQ(meaning(Code::kCancelled), ExitMeaning::kStopped);
  for (const Code code :
       {Code::kInvalidArgument, Code::kNotFound, Code::kCorrupt, Code::kExhausted, Code::kInternal})
    EXPECT_EQ(meaning(code), ExitMeaning::kUserFault) << to_string(code);
  EXPECT_EQ(meaning_of_exit(1, 0), ExitMeaning::kUserFault);
}

TEST(MeaningOfExit, DeathByOurSigtermIsAStop) {
  EXPECT_EQ(meaning_of_exit(128 + SIGTERM, SIGTERM), ExitMeaning::kStopped);
  for (const int signal : {SIGKILL, SIGSEGV, SIGBUS, SIGABRT})
    EXPECT_EQ(meaning_of_exit(128 + signal, signal), ExitMeaning::kRetryable);
}

}  // namespace
}  // namespace yard
