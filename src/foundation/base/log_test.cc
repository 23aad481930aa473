#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"

namespace yard {
namespace {

class LogTest : public testing::Test {
 protected:
  ~LogTest() override {
    EXPECT_TRUE(configure_log({}));
    ::unlink(path_.c_str());
  }

  void log_to_file(LogOptions options) {
    options.file = path_;
    ASSERT_TRUE(configure_log(options));
  }

  std::vector<std::string> lines() const {
    std::istringstream content(*read_file(path_));
    std::vector<std::string> lines;
    for (std::string line; std::getline(content, line);) lines.push_back(line);
    return lines;
  }

 private:
  const std::string path_ = testing::TempDir() + "yard-log-" + random_name(8);
};

TEST_F(LogTest, TextLineHasTimeLevelSourceAndMessage) {
  log_to_file({.source = "rank 1"});
  log_info("restored step {}", 7);
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_TRUE(std::regex_match(
      lines()[0],
      std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    \[rank 1\] restored step 7)")))
      << lines()[0];
}

TEST_F(LogTest, JsonLineKeepsAnyMessage) {
  log_to_file({.format = LogFormat::kJsonLines, .source = "host"});
  write_log(LogLevel::kWarning, "a \"quoted\"\nline, {} and \xff");
  ASSERT_EQ(lines().size(), 1u);
  const auto json = parse_json(lines()[0], "log line");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["level"], "warning");
  EXPECT_EQ((*json)["source"], "host");
  EXPECT_EQ((*json)["message"], "a \"quoted\"\nline, {} and \xEF\xBF\xBD");
}

TEST_F(LogTest, LinesBelowTheLevelAreDropped) {
  log_to_file({.level = LogLevel::kWarning});
  log_debug("no");
  log_info("no");
  log_warning("yes");
  log_error("yes");
  EXPECT_EQ(lines().size(), 2u);
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  EXPECT_TRUE(log_enabled(LogLevel::kError));
}

TEST_F(LogTest, AppendsToWhatIsThere) {
  log_to_file({});
  log_info("first");
  log_to_file({});
  log_info("second");
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  log_to_file({.format = LogFormat::kJsonLines});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log_info("thread {} line {}", t, i);
    });
  for (auto& thread : threads) thread.join();
  const auto all = lines();
  EXPECT_EQ(all.size(), 400u);
  for (const auto& line : all) EXPECT_TRUE(parse_json(line, "line")) << line;
}

TEST_F(LogTest, FileThatCannotBeOpenedIsAnErrorAndKeepsTheOldLog) {
  log_to_file({});
  EXPECT_EQ(configure_log({.file = "/nonexistent/dir/log"}).error().code, Code::kNotFound);
  EXPECT_EQ(configure_log({.file = testing::TempDir()}).error().code, Code::kInvalidArgument);
  log_info("still here");
  EXPECT_EQ(lines().size(), 1u);
}

}  // namespace
}  // namespace yard
