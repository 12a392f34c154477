// Chart: what a picture shows, as plain data. draw_chart() in picture/picture.h turns it into a PNG, SVG or PDF.
//
//   title, subtitle
//   +-------------+ +-------------+
//   | panel       | | panel       |    panels from left to right, `columns` in a row
//   +-------------+ +-------------+
//   note
//
// A panel has two axes with series, or one heat map. Values that are not finite are not drawn; text may be any bytes.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

enum class AxisScaling : uint8_t { automatic, linear, logarithmic };  // automatic: logarithmic if values differ widely
enum class BetterEnd : uint8_t { none, high, low };                   // where the better values of an axis are

struct ChartAxis {
  std::string title, unit;
  AxisScaling scaling = AxisScaling::automatic;
  BetterEnd better = BetterEnd::none;  // written at the axis with an arrow
  bool better_at_top = false;          // true: an axis whose better values are low runs downwards
  bool from_zero = false;              // a linear axis includes zero
  std::optional<double> low, high;     // fixed ends; values outside are clipped
};

// A value with an error bar from `low` to `high`, which are NaN if there is none.
struct ChartValue {
  double value = 0;
  double low = NAN, high = NAN;
};

struct ChartPoint {
  ChartValue x, y;
  std::string name;  // written next to a mark of kind `points`
};

// dots: many small marks without names. steps: a line that is level until the next point. bars and limits: a bar and a
// mark across it, from the left; x is the value and y the index of the category.
enum class ChartMark : uint8_t { points, line, steps, dots, bars, limits };

struct ChartSeries {
  std::string name;  // in the legend; "": not listed
  ChartMark mark = ChartMark::line;
  std::vector<ChartPoint> points;
  // Index of colour, marker and dash pattern; -1: grey. Equal signs in two panels mean the same thing.
  int sign = 0;
  bool hollow = false;  // points: only the outline
  bool joined = false;  // points: a thin line joins them
};

// Shares between 0 and 1, or values between `low` and `high`. [rows][columns]; NaN: no value.
struct HeatMap {
  std::vector<std::string> rows, columns;
  std::vector<std::vector<double>> values;
  double low = 0, high = 1;
  int digits = 2;
};

enum class SeriesNames : uint8_t { legend, at_line_ends, none };

struct ChartPanel {
  std::string title;
  ChartAxis x, y;
  std::vector<std::string> categories;  // names of the bars, from the top; the y axis shows them in place of numbers
  std::vector<ChartSeries> series;
  SeriesNames names = SeriesNames::legend;
  std::optional<HeatMap> heat;
  std::string empty = "not measured";  // written in a panel without values
};

struct Chart {
  std::string title, subtitle, note;
  std::vector<ChartPanel> panels;
  int columns = 1;
  double width = 960;        // in pixels of the SVG; a PNG has twice as many
  double plot_height = 320;  // height of a panel's axes; bars and heat maps choose their own
};

}  // namespace millrace
