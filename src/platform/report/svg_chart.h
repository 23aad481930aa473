// A line chart as one inline SVG element: no script, colours by CSS class. Pure.
#pragma once

#include <string>
#include <vector>

namespace yard::report {

struct ChartPoint {
  double x = 0;
  double y = 0;  // not finite: the line is broken here
};

enum class SeriesStyle { kLine, kFaintLine, kDots };

struct ChartSeries {
  std::string name;       // shown in the legend, escaped here
  std::string css_class;  // names a colour of the page's style
  SeriesStyle style = SeriesStyle::kLine;
  std::vector<ChartPoint> points;  // in ascending x
};

// A vertical line: a stage begins, a rank was killed.
struct ChartMarker {
  double x = 0;
  std::string label;
  std::string css_class;
};

struct Chart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  bool from_zero = false;  // the y axis starts at 0; else it fits the values
  std::vector<ChartSeries> series = {};
  std::vector<ChartMarker> markers = {};
};

// Without any finite point, a note says so in place of the chart; one point is drawn as a dot.
// The y axis is logarithmic when all values are positive and span more than a factor of 20. Long
// series are thinned, their extremes kept, so that the page stays small.
std::string render_svg(const Chart& chart);

// The exponential moving average over about `width` points, without the bias of its start.
std::vector<ChartPoint> smooth(const std::vector<ChartPoint>& points, double width);
// At most `count_max` points: of each run of neighbours the lowest and the highest. Breaks are
// kept.
std::vector<ChartPoint> thin(const std::vector<ChartPoint>& points, size_t count_max);
// About `count` round values (1, 2 or 5 times a power of ten apart) that lie in [low, high].
std::vector<double> round_ticks(double low, double high, int count);

}  // namespace yard::report
