// SvgChart: a chart of lines and dots, as an SVG element. The page defines the colours of the series: classes s0, s1,
// s2.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace {

// Escapes text for HTML and SVG.
std::string html_escape(const std::string& text);

struct SvgSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool dots = false;  // draw dots instead of a line
};

struct SvgChart {
  std::string title, x_label, y_label;
  std::vector<SvgSeries> series;

  std::string svg() const;
};

}  // namespace millrace
