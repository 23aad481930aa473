#include "base/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

namespace yard {
namespace {

TEST(OpenFilesTest, TheSoftLimitIsRaisedToTheHardOneAndNeverLowered) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{std::min<rlim_t>(100, before.rlim_max), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(open_files_max(), low.rlim_cur);
  EXPECT_EQ(raise_open_files_max(), std::min<rlim_t>(before.rlim_max, 65'536));
  const rlimit high{before.rlim_max, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &high), 0);
  EXPECT_EQ(raise_open_files_max(), before.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace yard
