#include "picture/pixel_canvas.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>

namespace millrace {
namespace {

struct Glyph {
  char sign;
  std::array<uint8_t, 7> rows;  // five bits each, the leftmost dot is bit 4
};

constexpr Glyph kFont[] = {
    {'0', {14, 17, 19, 21, 25, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}},      {'2', {14, 17, 1, 2, 4, 8, 31}},
    {'3', {31, 2, 4, 2, 1, 17, 14}},     {'4', {2, 6, 10, 18, 31, 2, 2}},     {'5', {31, 16, 30, 1, 1, 17, 14}},
    {'6', {6, 8, 16, 30, 17, 17, 14}},   {'7', {31, 1, 2, 4, 8, 8, 8}},       {'8', {14, 17, 17, 14, 17, 17, 14}},
    {'9', {14, 17, 17, 15, 1, 2, 12}},   {'A', {14, 17, 17, 31, 17, 17, 17}}, {'B', {30, 17, 17, 30, 17, 17, 30}},
    {'C', {14, 17, 16, 16, 16, 17, 14}}, {'D', {28, 18, 17, 17, 17, 18, 28}}, {'E', {31, 16, 16, 30, 16, 16, 31}},
    {'F', {31, 16, 16, 30, 16, 16, 16}}, {'G', {14, 17, 16, 23, 17, 17, 15}}, {'H', {17, 17, 17, 31, 17, 17, 17}},
    {'I', {14, 4, 4, 4, 4, 4, 14}},      {'J', {7, 2, 2, 2, 2, 18, 12}},      {'K', {17, 18, 20, 24, 20, 18, 17}},
    {'L', {16, 16, 16, 16, 16, 16, 31}}, {'M', {17, 27, 21, 21, 17, 17, 17}}, {'N', {17, 17, 25, 21, 19, 17, 17}},
    {'O', {14, 17, 17, 17, 17, 17, 14}}, {'P', {30, 17, 17, 30, 16, 16, 16}}, {'Q', {14, 17, 17, 17, 21, 18, 13}},
    {'R', {30, 17, 17, 30, 20, 18, 17}}, {'S', {15, 16, 16, 14, 1, 1, 30}},   {'T', {31, 4, 4, 4, 4, 4, 4}},
    {'U', {17, 17, 17, 17, 17, 17, 14}}, {'V', {17, 17, 17, 17, 17, 10, 4}},  {'W', {17, 17, 17, 21, 21, 21, 10}},
    {'X', {17, 17, 10, 4, 10, 17, 17}},  {'Y', {17, 17, 17, 10, 4, 4, 4}},    {'Z', {31, 1, 2, 4, 8, 16, 31}},
    {'.', {0, 0, 0, 0, 0, 12, 12}},      {',', {0, 0, 0, 0, 12, 4, 8}},       {'-', {0, 0, 0, 31, 0, 0, 0}},
    {'/', {0, 1, 2, 4, 8, 16, 0}},       {'(', {2, 4, 8, 8, 8, 4, 2}},        {')', {8, 4, 2, 2, 2, 4, 8}},
    {':', {0, 12, 12, 0, 12, 12, 0}},    {'%', {24, 25, 2, 4, 8, 19, 3}},     {'a', {0, 0, 14, 1, 15, 17, 15}},
    {'b', {16, 16, 30, 17, 17, 17, 30}}, {'c', {0, 0, 14, 17, 16, 17, 14}},   {'d', {1, 1, 15, 17, 17, 17, 15}},
    {'e', {0, 0, 14, 17, 31, 16, 14}},   {'f', {6, 9, 8, 28, 8, 8, 8}},       {'g', {15, 17, 17, 17, 15, 1, 14}},
    {'h', {16, 16, 30, 17, 17, 17, 17}}, {'i', {4, 0, 12, 4, 4, 4, 14}},      {'j', {2, 0, 6, 2, 2, 18, 12}},
    {'k', {16, 16, 18, 20, 24, 20, 18}}, {'l', {12, 4, 4, 4, 4, 4, 14}},      {'m', {0, 0, 26, 21, 21, 21, 21}},
    {'n', {0, 0, 30, 17, 17, 17, 17}},   {'o', {0, 0, 14, 17, 17, 17, 14}},   {'p', {30, 17, 17, 17, 30, 16, 16}},
    {'q', {15, 17, 17, 17, 15, 1, 1}},   {'r', {0, 0, 22, 25, 16, 16, 16}},   {'s', {0, 0, 15, 16, 14, 1, 30}},
    {'t', {8, 8, 28, 8, 8, 9, 6}},       {'u', {0, 0, 17, 17, 17, 17, 15}},   {'v', {0, 0, 17, 17, 17, 10, 4}},
    {'w', {0, 0, 17, 17, 21, 21, 10}},   {'x', {0, 0, 17, 10, 4, 10, 17}},    {'y', {17, 17, 17, 17, 15, 1, 14}},
    {'z', {0, 0, 31, 2, 4, 8, 31}},      {'=', {0, 0, 31, 0, 31, 0, 0}},      {'_', {0, 0, 0, 0, 0, 0, 31}},
    {'+', {0, 4, 4, 31, 4, 4, 0}},       {'*', {0, 21, 14, 31, 14, 21, 0}},   {'[', {14, 8, 8, 8, 8, 8, 14}},
    {']', {14, 2, 2, 2, 2, 2, 14}},      {'@', {14, 17, 23, 21, 23, 16, 14}}, {'#', {10, 10, 31, 10, 31, 10, 10}},
    {'~', {0, 0, 8, 21, 2, 0, 0}},       {'|', {4, 4, 4, 4, 4, 4, 4}},        {';', {0, 12, 12, 0, 12, 4, 8}},
    {'<', {2, 4, 8, 16, 8, 4, 2}},       {'>', {8, 4, 2, 1, 2, 4, 8}},        {'&', {12, 18, 20, 8, 21, 18, 13}},
    {'?', {14, 17, 1, 2, 4, 0, 4}},      {'!', {4, 4, 4, 4, 4, 0, 4}},
};

constexpr std::string_view kBelowTheLine = "gpqy";  // drawn two dots lower

}  // namespace

PixelCanvas::PixelCanvas(int width, int height, Colour background)
    : width_(std::clamp(width, 1, 8192)), height_(std::clamp(height, 1, 8192)) {
  pixels_.resize(static_cast<size_t>(width_) * static_cast<size_t>(height_) * 3);
  for (size_t i = 0; i < pixels_.size(); i += 3) {
    pixels_[i] = background.r;
    pixels_[i + 1] = background.g;
    pixels_[i + 2] = background.b;
  }
}

Colour PixelCanvas::at(int x, int y) const {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return {};
  const uint8_t* p = &pixels_[(static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)) * 3];
  return {p[0], p[1], p[2]};
}

void PixelCanvas::blend(int x, int y, Colour colour, double share) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_ || share <= 0) return;
  uint8_t* p = &pixels_[(static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)) * 3];
  const std::array<uint8_t, 3> to{colour.r, colour.g, colour.b};
  for (size_t c = 0; c < 3; ++c) p[c] = static_cast<uint8_t>(std::lround(p[c] + (to[c] - p[c]) * std::min(1.0, share)));
}

void PixelCanvas::line(double x0, double y0, double x1, double y1, double thickness, Colour colour) {
  const double reach = thickness / 2 + 1, dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
  auto bound = [](double v, int limit) { return static_cast<int>(std::clamp(v, 0.0, static_cast<double>(limit - 1))); };
  for (int y = bound(std::min(y0, y1) - reach, height_); y <= bound(std::max(y0, y1) + reach, height_); ++y) {
    for (int x = bound(std::min(x0, x1) - reach, width_); x <= bound(std::max(x0, x1) + reach, width_); ++x) {
      const double along = length2 > 0 ? std::clamp(((x - x0) * dx + (y - y0) * dy) / length2, 0.0, 1.0) : 0.0;
      const double away = std::hypot(x - x0 - along * dx, y - y0 - along * dy);
      blend(x, y, colour, thickness / 2 + 0.5 - away);
    }
  }
}

void PixelCanvas::text(int x, int y, std::string_view s, int scale, Colour colour) {
  for (char c : s) {
    for (const Glyph& glyph : kFont) {
      if (glyph.sign != c) continue;
      const int top = y + (kBelowTheLine.find(c) == std::string_view::npos ? 0 : 2 * scale);
      for (int dot = 0; dot < 35 * scale * scale; ++dot) {
        const int column = dot % (5 * scale), row = dot / (5 * scale);
        if (glyph.rows[static_cast<size_t>(row / scale)] >> (4 - column / scale) & 1)
          blend(x + column, top + row, colour, 1);
      }
    }
    x += 6 * scale;
  }
}

Result<void> PixelCanvas::write_png(const std::string& path) const {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width_);
  image.height = static_cast<png_uint_32>(height_);
  image.format = PNG_FORMAT_RGB;
  if (!png_image_write_to_file(&image, path.c_str(), 0, pixels_.data(), 0, nullptr))
    return Error::user("cannot write the picture: " + path);
  return {};
}

}  // namespace millrace
