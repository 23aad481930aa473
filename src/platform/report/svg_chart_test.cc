#include "report/svg_chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace yard::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

size_t count_of(const std::string& text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

Chart chart_of(std::vector<ChartPoint> points) {
  Chart chart;
  chart.title = "Loss";
  chart.series = {{"training", "train", SeriesStyle::kLine, std::move(points)}};
  return chart;
}

TEST(SvgChartTest, ChartWithoutValuesSaysSo) {
  for (const auto& points : {std::vector<ChartPoint>{}, std::vector<ChartPoint>{{1, kNaN}}}) {
    const std::string svg = render_svg(chart_of(points));
    EXPECT_NE(svg.find("no values were reported"), std::string::npos);
    EXPECT_EQ(svg.find("<svg"), std::string::npos);
  }
}

TEST(SvgChartTest, OnePointIsADotAtAFinitePlace) {
  const std::string svg = render_svg(chart_of({{7, 0.5}}));
  EXPECT_EQ(count_of(svg, "<circle"), 1u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SvgChartTest, LineIsBrokenWhereAValueIsMissing) {
  const std::string svg =
      render_svg(chart_of({{1, 1}, {2, 2}, {3, kNaN}, {4, 3}, {5, 4}, {6, kNaN}, {7, 2}}));
  EXPECT_EQ(count_of(svg, "<path d=\"M"), 1u);
  const std::string path =
      svg.substr(svg.find("<path d="), svg.find("/>", svg.find("<path d=")) - svg.find("<path d="));
  EXPECT_EQ(count_of(path, "M"), 2u) << path;
  EXPECT_EQ(count_of(svg, "<circle"), 1u) << "the lone last point";
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(SvgChartTest, ConstantSeriesHasAnAxis) {
  const std::string svg = render_svg(chart_of({{1, 3}, {2, 3}, {3, 3}}));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_GE(count_of(svg, "class=\"grid\""), 2u);
}

TEST(SvgChartTest, LabelsAreEscaped) {
  Chart chart = chart_of({{1, 1}, {2, 2}});
  chart.title = "<b>";
  chart.series[0].name = "a&b";
  chart.markers = {{1.5, "\"x\"<i>", "kill"}};
  const std::string svg = render_svg(chart);
  EXPECT_EQ(svg.find("<i>"), std::string::npos);
  EXPECT_NE(svg.find("&lt;b&gt;"), std::string::npos);
  EXPECT_NE(svg.find("a&amp;b"), std::string::npos);
  EXPECT_NE(svg.find("&quot;x&quot;&lt;i&gt;"), std::string::npos);
}

TEST(SvgChartTest, MarkerOutsideTheAxisIsLeftOut) {
  Chart chart = chart_of({{1, 1}, {2, 2}});
  chart.markers = {{9, "late", "kill"}};
  EXPECT_EQ(render_svg(chart).find("late"), std::string::npos);
}

TEST(SvgChartTest, WideRangeGetsALogarithmicAxis) {
  const std::string svg = render_svg(chart_of({{1, 100}, {2, 10}, {3, 1}, {4, 0.1}}));
  for (const char* tick : {">100<", ">10<", ">1<", ">0.1<"}) {
    EXPECT_NE(svg.find(tick), std::string::npos) << tick;
  }
}

TEST(SvgChartTest, OneSpikeDoesNotFlattenTheCurve) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 200; ++i) points.push_back({double(i), 1 + 0.001 * i});
  points[3].y = 15;
  const std::string svg = render_svg(chart_of(points));
  EXPECT_EQ(svg.find(">10<"), std::string::npos) << "the axis ends near 1.2";
}

TEST(SvgChartTest, ThinKeepsTheExtremesAndTheBreaks) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 10000; ++i) points.push_back({double(i), std::sin(i * 0.01)});
  points[1234].y = 50;
  points[7777].y = -50;
  points[5000].y = kNaN;
  const std::vector<ChartPoint> thinned = thin(points, 600);
  EXPECT_LE(thinned.size(), 600u);
  const auto has = [&](double y) {
    return std::any_of(thinned.begin(), thinned.end(),
                       [&](const ChartPoint& p) { return p.y == y; });
  };
  EXPECT_TRUE(has(50));
  EXPECT_TRUE(has(-50));
  EXPECT_TRUE(std::any_of(thinned.begin(), thinned.end(),
                          [](const ChartPoint& p) { return std::isnan(p.y); }));
  EXPECT_TRUE(std::is_sorted(thinned.begin(), thinned.end(),
                             [](const auto& a, const auto& b) { return a.x < b.x; }));
}

TEST(SvgChartTest, SmoothingStartsUnbiasedAndPassesOverGaps) {
  const std::vector<ChartPoint> smoothed = smooth({{1, 4}, {2, 4}, {3, kNaN}, {4, 4}}, 10);
  EXPECT_DOUBLE_EQ(smoothed[0].y, 4);
  EXPECT_DOUBLE_EQ(smoothed[1].y, 4);
  EXPECT_TRUE(std::isnan(smoothed[2].y));
  EXPECT_DOUBLE_EQ(smoothed[3].y, 4);
}

TEST(SvgChartTest, TicksAreRoundAndInside) {
  EXPECT_EQ(round_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(round_ticks(3, 3, 5), std::vector<double>{});
  for (const double tick : round_ticks(0.013, 0.087, 5)) {
    EXPECT_GE(tick, 0.013);
    EXPECT_LE(tick, 0.0871);
  }
}

}  // namespace
}  // namespace yard::report
