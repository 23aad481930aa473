#include "logs/line_splitter.h"

#include <gtest/gtest.h>

namespace yard::logs {
namespace {

using Lines = std::vector<std::string>;

TEST(LineSplitterTest, LinesAreTheSameHoweverTheBytesAreCut) {
  const std::string bytes = "a\nb c\r\n\n10%\r20%\rend\n";
  const Lines expected{"a", "b c", "", "10%", "20%", "end"};
  for (size_t cut = 0; cut <= bytes.size(); ++cut)
    for (size_t second = cut; second <= bytes.size(); ++second) {
      LineSplitter splitter;
      Lines lines;
      splitter.feed(bytes.substr(0, cut), lines);
      splitter.feed(bytes.substr(cut, second - cut), lines);
      splitter.feed(bytes.substr(second), lines);
      EXPECT_EQ(lines, expected) << cut << " " << second;
      std::string rest;
      EXPECT_FALSE(splitter.take_rest(rest));
    }
}

TEST(LineSplitterTest, ALineThatNeverEndsIsBroken) {
  LineSplitter splitter;
  Lines lines;
  const std::string block(100'000, 'x');
  for (int i = 0; i < 10; ++i) splitter.feed(block, lines);
  ASSERT_EQ(lines.size(), 1'000'000 / kLineBytesMax);
  for (const std::string& line : lines) EXPECT_EQ(line.size(), kLineBytesMax);
  std::string rest;
  ASSERT_TRUE(splitter.take_rest(rest));
  EXPECT_EQ(rest.size(), 1'000'000 % kLineBytesMax);
}

TEST(LineSplitterTest, ALineOfExactlyTheLimitIsOneLine) {
  LineSplitter splitter;
  Lines lines;
  splitter.feed(std::string(kLineBytesMax, 'x') + "\nnext\n", lines);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "next");
}

TEST(LineSplitterTest, WhatHasNoEndIsTakenOnce) {
  LineSplitter splitter;
  Lines lines;
  splitter.feed("no newline", lines);
  EXPECT_TRUE(lines.empty());
  std::string rest;
  EXPECT_TRUE(splitter.take_rest(rest));
  EXPECT_EQ(rest, "no newline");
  EXPECT_FALSE(splitter.take_rest(rest));
}

}  // namespace
}  // namespace yard::logs
