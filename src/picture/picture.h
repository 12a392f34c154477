// Picture: a list of lines, discs, boxes and texts, written as SVG or, at twice the size, as PNG.
//
//   x to the right, y downwards, (0, 0) top left, in pixels of the SVG
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "picture/pixel_canvas.h"

namespace millrace {

enum class TextAnchor : uint8_t { start, middle, end };

class Picture {
 public:
  Picture(int width, int height) : width_(width), height_(height) {}

  static constexpr double kTextHeight = 9;  // height of digits
  static double text_width(std::string_view text);

  int width() const { return width_; }
  int height() const { return height_; }

  void line(double x0, double y0, double x1, double y1, double thickness, Colour colour);
  void disc(double x, double y, double radius, Colour colour);
  void box(double x, double y, double width, double height, Colour colour);
  // Draws text. `y`: the baseline. Characters outside of ASCII are drawn as "?" in the PNG.
  void text(double x, double y, const std::string& text, Colour colour, TextAnchor anchor = TextAnchor::start);

  std::string svg() const;
  // Errors: user (the file cannot be written).
  Result<void> write_png(const std::string& path) const;

 private:
  struct Shape {
    enum class Kind : uint8_t { line, disc, box, text } kind;
    double x0, y0, x1, y1;  // disc: x1 is the radius; box: x1, y1 are width and height
    double thickness = 0;
    Colour colour;
    std::string text = {};
    TextAnchor anchor = TextAnchor::start;
  };

  int width_, height_;
  std::vector<Shape> shapes_;
};

// Returns the largest step of the form 1, 2 or 5 times a power of ten that divides `span` into at least `count` steps.
double round_step(double span, double count);

// Escapes text for HTML and SVG.
std::string escape_html(std::string_view text);

}  // namespace millrace
