#include "report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/html.h"

namespace yard::report {
namespace {

// User units of the view box; the page scales the whole to its column.
constexpr double kWidth = 720;
constexpr double kHeight = 260;
constexpr double kLeft = 56;
constexpr double kRight = 20;
constexpr double kTop = 36;
constexpr double kBottom = 40;
constexpr size_t kPointCountMax = 600;  // no screen shows more columns than this in our width

// Where the logarithmic axis reads better than the linear one.
constexpr double kLogSpanMin = 20;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool empty() const { return low > high; }
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // A range of no extent cannot be drawn.
  void widen() {
    if (high > low) return;
    const double margin = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= margin;
    high += margin;
  }
};

struct Axes {
  Range x;
  Range y;
  bool log_y = false;

  double px(double value) const {
    return kLeft + (value - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight);
  }
  double py(double value) const {
    const double at =
        log_y ? std::log10(std::max(value, std::numeric_limits<double>::min())) : value;
    const double inside = std::clamp((at - y.low) / (y.high - y.low), 0.0, 1.0);
    return kHeight - kBottom - inside * (kHeight - kTop - kBottom);
  }
};

bool drawable(const ChartPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

// The y axis fits all but the most extreme values: one early spike must not flatten the curve.
Range robust_range(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t cut = values.size() >= 100 ? values.size() / 100 : 0;
  Range range;
  range.add(values.front());
  range.add(values[values.size() - 1 - cut]);
  return range;
}

Axes fit_axes(const Chart& chart) {
  Axes axes;
  std::vector<double> values;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (!drawable(point)) continue;
      axes.x.add(point.x);
      values.push_back(point.y);
    }
  }
  if (values.empty()) return axes;
  axes.y = robust_range(std::move(values));
  axes.x.widen();
  axes.log_y = !chart.from_zero && axes.y.low > 0 && axes.y.high / axes.y.low > kLogSpanMin;
  if (axes.log_y) {
    axes.y = {std::log10(axes.y.low), std::log10(axes.y.high)};
  } else if (chart.from_zero) {
    axes.y.low = std::min(axes.y.low, 0.0);
    axes.y.high *= 1.08;
  }
  axes.y.widen();
  return axes;
}

std::vector<double> y_ticks(const Axes& axes) {
  if (!axes.log_y) return round_ticks(axes.y.low, axes.y.high, 5);
  std::vector<double> ticks;
  for (int power = static_cast<int>(std::floor(axes.y.low)); power <= axes.y.high; ++power) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double value = step * std::pow(10.0, power);
      const double at = std::log10(value);
      if (at >= axes.y.low && at <= axes.y.high) ticks.push_back(value);
    }
  }
  return ticks;
}

std::string draw_axes(const Chart& chart, const Axes& axes) {
  std::string out;
  const double bottom = kHeight - kBottom;
  for (const double tick : y_ticks(axes)) {
    const double y = axes.py(tick);
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>",
        kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, tick);
  }
  for (const double tick : round_ticks(axes.x.low, axes.x.high, 7)) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>",
                       axes.px(tick), bottom + 16, tick);
  }
  out += fmt::format("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", kLeft,
                     kWidth - kRight, bottom, bottom);
  out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                     (kLeft + kWidth - kRight) / 2, kHeight - 6, escape_html(chart.x_label));
  out += fmt::format("<text class=\"unit\" x=\"4\" y=\"{}\">{}</text>", 13,
                     escape_html(chart.y_label));
  return out;
}

std::string draw_markers(const Chart& chart, const Axes& axes) {
  std::string out;
  for (const ChartMarker& marker : chart.markers) {
    if (marker.x < axes.x.low || marker.x > axes.x.high) continue;
    const double x = axes.px(marker.x);
    // Near the right edge the label would leave the picture.
    const bool before = x > kWidth - 140;
    const std::string label = escape_html(marker.label);
    out += fmt::format(
        "<g class=\"marker {}\"><title>{}</title><line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" "
        "y2=\"{}\"/><text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text></g>",
        marker.css_class, label, x, x, kTop - 16, kHeight - kBottom, before ? x - 4 : x + 4,
        kTop - 8, before ? "end" : "start", label);
  }
  return out;
}

std::string dot(const ChartPoint& point, const Axes& axes) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}</title></circle>",
                     axes.px(point.x), axes.py(point.y), format_number(point.y));
}

// One path; a piece of a single point has no length and is drawn as a dot.
std::string draw_line(const std::vector<ChartPoint>& points, const Axes& axes) {
  std::string path;
  std::string dots;
  size_t piece_begin = 0;
  const auto end_piece = [&](size_t end) {
    if (end == piece_begin + 1) dots += dot(points[piece_begin], axes);
    for (size_t i = piece_begin; end > piece_begin + 1 && i < end; ++i) {
      path += fmt::format("{}{:.1f} {:.1f}", i == piece_begin ? 'M' : 'L', axes.px(points[i].x),
                          axes.py(points[i].y));
    }
    piece_begin = end + 1;
  };
  for (size_t i = 0; i < points.size(); ++i) {
    if (!drawable(points[i])) end_piece(i);
  }
  end_piece(points.size());
  if (!path.empty()) path = "<path d=\"" + path + "\"/>";
  return path + dots;
}

std::string draw_series(const ChartSeries& series, const Axes& axes) {
  std::string inner;
  if (series.style == SeriesStyle::kDots) {
    for (const ChartPoint& point : series.points) {
      if (drawable(point)) inner += dot(point, axes);
    }
  } else {
    inner = draw_line(thin(series.points, kPointCountMax), axes);
  }
  const char* faint = series.style == SeriesStyle::kFaintLine ? " faint" : "";
  return fmt::format("<g class=\"series {}{}\">{}</g>", series.css_class, faint, inner);
}

std::string legend(const Chart& chart) {
  std::string out = "<span class=\"legend\">";
  for (const ChartSeries& series : chart.series) {
    if (series.name.empty() || series.points.empty()) continue;
    out +=
        fmt::format("<span class=\"key {}\">{}</span>", series.css_class, escape_html(series.name));
  }
  return out + "</span>";
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(count, 1);
  if (!(rough > 0) || !std::isfinite(rough)) return {};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / step);
  for (int i = 0; (first + i) * step <= high * (1 + 1e-12) && i < 100; ++i) {
    ticks.push_back((first + i) * step);
  }
  return ticks;
}

std::vector<ChartPoint> smooth(const std::vector<ChartPoint>& points, double width) {
  const double keep = width <= 1 ? 0 : 1 - 1 / width;
  std::vector<ChartPoint> out;
  out.reserve(points.size());
  double sum = 0;
  double weight = 0;
  for (const ChartPoint& point : points) {
    if (!std::isfinite(point.y)) {
      out.push_back(point);
      continue;
    }
    sum = keep * sum + (1 - keep) * point.y;
    weight = keep * weight + (1 - keep);
    out.push_back({point.x, sum / weight});
  }
  return out;
}

std::vector<ChartPoint> thin(const std::vector<ChartPoint>& points, size_t count_max) {
  if (points.size() <= count_max || count_max < 2) return points;
  const size_t run = (points.size() * 2 + count_max - 1) / count_max;
  std::vector<ChartPoint> out;
  const auto lower = [](const ChartPoint& a, const ChartPoint& b) { return a.y < b.y; };
  for (size_t begin = 0; begin < points.size(); begin += run) {
    const auto first = points.begin() + static_cast<ptrdiff_t>(begin);
    const auto last = points.begin() + static_cast<ptrdiff_t>(std::min(begin + run, points.size()));
    const auto gap = std::find_if_not(first, last, drawable);
    if (gap != last) {
      out.push_back(*gap);
      continue;
    }
    auto [low, high] = std::minmax_element(first, last, lower);
    if (low > high) std::swap(low, high);
    out.push_back(*low);
    if (high != low) out.push_back(*high);
  }
  return out;
}

std::string render_svg(const Chart& chart) {
  const Axes axes = fit_axes(chart);
  std::string out = "<figure class=\"chart\"><figcaption><b>" + escape_html(chart.title) + "</b>";
  if (axes.y.empty()) {
    return out + "</figcaption><p class=\"none\">no values were reported</p></figure>";
  }
  out += legend(chart) + "</figcaption>";
  out += fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                     escape_html(chart.title));
  out += draw_axes(chart, axes);
  for (const ChartSeries& series : chart.series) out += draw_series(series, axes);
  out += draw_markers(chart, axes);
  return out + "</svg></figure>";
}

}  // namespace yard::report
