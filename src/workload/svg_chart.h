// SvgChart: lines and dots over two axes, as an SVG element. Colours are defined by the page: classes s0, s1, s2.
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
  bool dots = false;  // instead of a line
};

struct SvgChart {
  std::string title, x_label, y_label;
  std::vector<SvgSeries> series;

  std::string svg() const;
};

}  // namespace millrace
