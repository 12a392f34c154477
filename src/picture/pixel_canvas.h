// A small RGB canvas with lines and a 5x7 font for plots, written as PNG.
//
//   x to the right, y downwards, (0, 0) top left. Everything outside is clipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct Colour {
  uint8_t r = 0, g = 0, b = 0;
};

class PixelCanvas {
 public:
  PixelCanvas(int width, int height, Colour background);

  int width() const { return width_; }
  int height() const { return height_; }
  Colour at(int x, int y) const;

  // Draws a line with smoothed edges. `thickness`: in pixels.
  void line(double x0, double y0, double x1, double y1, double thickness, Colour colour);

  // Draws ASCII letters, digits and most signs in a 5x7 font, `scale` pixels per dot; (x, y) is the top left corner.
  // Other characters are left blank.
  void text(int x, int y, std::string_view s, int scale, Colour colour);
  static int text_width(std::string_view s, int scale) { return static_cast<int>(s.size()) * 6 * scale - scale; }

  Result<void> write_png(const std::string& path) const;

 private:
  void blend(int x, int y, Colour colour, double share);

  int width_, height_;
  std::vector<uint8_t> pixels_;  // [height, width, 3]
};

}  // namespace millrace
