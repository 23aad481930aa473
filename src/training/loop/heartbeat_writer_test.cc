#include "loop/heartbeat_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"

namespace yard::loop {
namespace {

TEST(HeartbeatWriterTest, AppendsOneJsonObjectPerLine) {
  const std::string path = testing::TempDir() + "heartbeat_writer_test.jsonl";
  std::filesystem::remove(path);
  for (int i = 0; i < 2; ++i) {
    auto writer = HeartbeatWriter::open(path, Clock::real());
    ASSERT_TRUE(writer);
    writer->phase("train");
    writer->tell("eval", {{"loss", std::nan("")}, {"stage", "a\nb"}});
  }
  const std::string text = *read_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  const Json second = *parse_json(
      text.substr(text.find('\n') + 1, text.find('\n', text.find('\n') + 1) - text.find('\n')),
      "line");
  EXPECT_EQ(second["event"], "eval");
  EXPECT_TRUE(second["loss"].is_null());
  EXPECT_TRUE(second["t"].is_number());
}

TEST(HeartbeatWriterTest, TellsNobodyWithoutAFile) {
  HeartbeatWriter writer;
  writer.phase("train");
  EXPECT_FALSE(HeartbeatWriter::open("/no/such/folder/x", Clock::real()));
}

}  // namespace
}  // namespace yard::loop
