// Pen: draws lines, shapes and text on a Cairo surface in pixels of the picture. Included by the files of this folder
// that draw, only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "picture/cairo_library.h"
#include "picture/palette.h"

namespace millrace {

struct TextStyle {
  double size = 13;
  bool bold = false;
  double max_width = 0;  // wider text is wrapped; 0: never
  int max_lines = 1;     // text that needs more is cut, with an ellipsis
};

struct TextSize {
  double width = 0, height = 0;
};

struct Corner {
  double x = 0, y = 0;
};

enum class Across : uint8_t { left, middle, right };
enum class Down : uint8_t { top, middle, bottom };

class Pen {
 public:
  // `cairo` and `context` must outlive the pen, which does not own them.
  Pen(const CairoLibrary& cairo, cairo_t* context) : cairo_(cairo), context_(context) {}

  void set_colour(Colour colour, double opacity = 1);
  // `dashes`: in line widths; empty: solid.
  void set_line(double width, std::span<const double> dashes = {});

  void line(double x0, double y0, double x1, double y1);
  void path(std::span<const Corner> corners);
  // Draws all dots as one path, which keeps files small.
  void dots(std::span<const Corner> centres, double radius);
  void box(double x, double y, double width, double height);
  // `paper`: fills the inside of a hollow marker.
  void marker(Marker kind, double x, double y, double radius, Colour colour, bool hollow, Colour paper);

  TextSize measure(std::string_view text, const TextStyle& style) const;
  // (x, y): the point of the text's box that `across` and `down` name.
  void text(double x, double y, std::string_view text, const TextStyle& style, Colour colour,
            Across across = Across::left, Down down = Down::top);
  // Draws one line of text that runs upwards, centred on (x, y).
  void upright_text(double x, double y, std::string_view text, const TextStyle& style, Colour colour);

 private:
  PangoLayout* layout(std::string_view text, const TextStyle& style, Across across) const;
  TextSize size_of(PangoLayout* layout) const;
  void trace(Marker kind, double x, double y, double radius);

  const CairoLibrary& cairo_;
  cairo_t* context_;
};

}  // namespace millrace
