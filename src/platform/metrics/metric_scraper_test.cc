#include "metrics/metric_scraper.h"

#include <gtest/gtest.h>

namespace yard::metrics {
namespace {

MetricScraper scraper(std::vector<std::string> expressions) {
  std::vector<MetricDefinition> definitions;
  for (auto& each : expressions) definitions.push_back({.name = "m", .regex = each});
  auto created = MetricScraper::create(definitions);
  YARD_CHECK(created.has_value());
  return *std::move(created);
}

std::vector<double> values(const std::string& expression, const std::string& line) {
  auto one = scraper({expression});
  std::vector<double> found;
  for (const auto& each : one.scrape(line)) found.push_back(each.value);
  return found;
}

using Values = std::vector<double>;

TEST(MetricScraperTest, TheFormsThatUsersWrite) {
  EXPECT_EQ(values("loss=([0-9.]+)", "step 3 loss=0.25 lr=1"), Values{0.25});
  EXPECT_EQ(values("Train_Loss=(.*?);", "Train_Loss=1.5e-3; Acc=2;"), Values{1.5e-3});
  EXPECT_EQ(values("#quality_metric: host=\\S+, train loss <loss>=(\\S+)",
                   "#quality_metric: host=algo-1, train loss <loss>=-7"),
            Values{-7});
  EXPECT_EQ(values("(?<=acc: )[0-9.]+", "acc: 0.5"), Values{0.5});
  EXPECT_EQ(values("acc: (?:is )?([0-9.]+)", "acc: is 3"), Values{3});
}

TEST(MetricScraperTest, WhatIsNoNumberGivesNoValue) {
  for (const char* line :
       {"", "loss=", "loss=abc", "loss=nan", "loss=inf", "loss=1.2.3", "loss=1,5"})
    EXPECT_TRUE(values("loss=(\\S*)", line).empty()) << line;
  EXPECT_TRUE(values("a(b)?c", "ac").empty());
}

TEST(MetricScraperTest, EachDefinitionFindsItsOwn) {
  auto two = scraper({"a=([0-9]+)", "b=([0-9]+)"});
  const auto found = two.scrape("b=2 a=1");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].definition_index, 0u);
  EXPECT_EQ(found[0].value, 1);
  EXPECT_EQ(found[1].value, 2);
  EXPECT_EQ(two.scrape("b=2").front().definition_index, 1u);
}

TEST(MetricScraperTest, AnExpressionThatCannotBeReadIsNamedWithItsPlace) {
  const auto refused = MetricScraper::create({{.name = "train:loss", .regex = "loss=([0-9"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("train:loss"), std::string::npos);
  EXPECT_NE(refused.error().message.find("at 10"), std::string::npos) << refused.error().message;
}

TEST(MetricScraperTest, AnExpressionThatNeverEndsGivesUp) {
  auto one = scraper({"(x+x+)+y"});  // a "y" far behind, or it would see at once
  EXPECT_TRUE(one.scrape(std::string(5000, 'x') + " y").empty());
  EXPECT_EQ(one.overran(0), 1u);
}

TEST(MetricScraperTest, BytesThatAreNoTextDoNoHarm) {
  EXPECT_EQ(values("loss=([0-9.]+)", std::string("\xff\0loss=2\0", 9)), Values{2});
}

}  // namespace
}  // namespace yard::metrics
