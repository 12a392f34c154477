// PanelDrawing: one panel of a chart. It is measured first, so that the panels of a row can be aligned, and then drawn.
// Included by the files of this folder that draw, only.
//
//   head      title, legend
//   plot      axes or cells, with the space for labels at both sides
//   foot      labels of the x axis, its title, and the names that found no place at their points
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "picture/chart.h"
#include "picture/pen.h"

namespace millrace {

inline constexpr double kTextSize = 13, kTickSize = 12.5, kNameSize = 12.5, kPanelTitleSize = 14.5;
inline constexpr double kMarkerRadius = 5.5, kLineWidth = 2.2;

class PanelDrawing {
 public:
  PanelDrawing() = default;
  PanelDrawing(const PanelDrawing&) = delete;
  PanelDrawing& operator=(const PanelDrawing&) = delete;
  virtual ~PanelDrawing() = default;

  virtual double head_height() const = 0;
  virtual double plot_height() const = 0;
  virtual double foot_height() const = 0;
  // (x, y): the panel's corner at the top left. `head`: the largest head of the row. `pen`: of the final surface.
  virtual void draw(Pen& pen, double x, double y, double head) const = 0;
};

// `pen`: measures text, during the call only. The panel and the palette must outlive the result.
std::unique_ptr<PanelDrawing> make_axes_drawing(const Pen& pen, const Palette& palette, const ChartPanel& panel,
                                                double width, double plot_height);
std::unique_ptr<PanelDrawing> make_heat_drawing(const Pen& pen, const Palette& palette, const ChartPanel& panel,
                                                double width);

// The title of a panel, and a legend of its series where there is one.
class PanelHead {
 public:
  PanelHead(const Pen& pen, const ChartPanel& panel, double width);
  double height() const { return height_; }
  // (x, y): the top left corner. `height`: the largest head of the row; the title is at its top, the legend at its
  // bottom.
  void draw(Pen& pen, const Palette& palette, double x, double y, double height) const;

 private:
  struct Entry {
    const ChartSeries* series;
    double x, y;  // left end and middle height of the swatch, from the head's top left
  };

  const ChartPanel& panel_;
  double width_, height_ = 0, title_height_ = 0;
  std::vector<Entry> entries_;
};

// Returns "title, unit" with an arrow to the better end. `upright`: the text runs upwards along the y axis.
std::string axis_text(const ChartAxis& axis, bool upright);

}  // namespace millrace
