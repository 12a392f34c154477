#include "picture/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr int kPngScale = 2, kPngFontScale = 2;  // a letter is 6 dots wide, so 6 pixels of the SVG
constexpr double kLetterWidth = 6.0 * kPngFontScale / kPngScale;
constexpr int kDotsHigh = 7;
constexpr Colour kPaper{255, 255, 255};

std::string hex(Colour c) { return fmt::format("#{:02x}{:02x}{:02x}", c.r, c.g, c.b); }

const char* anchor_name(TextAnchor anchor) {
  switch (anchor) {
    case TextAnchor::start: return "start";
    case TextAnchor::middle: return "middle";
    case TextAnchor::end: return "end";
  }
  return "";
}

// One character each; what is not ASCII as "?".
std::string as_ascii(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) out += c;
    if (byte >= 0xc0) out += '?';
  }
  return out;
}

}  // namespace

double Picture::text_width(std::string_view text) { return kLetterWidth * static_cast<double>(as_ascii(text).size()); }

void Picture::line(double x0, double y0, double x1, double y1, double thickness, Colour colour) {
  shapes_.push_back({Shape::Kind::line, x0, y0, x1, y1, thickness, colour});
}

void Picture::disc(double x, double y, double radius, Colour colour) {
  shapes_.push_back({Shape::Kind::disc, x, y, radius, 0, 0, colour});
}

void Picture::box(double x, double y, double width, double height, Colour colour) {
  shapes_.push_back({Shape::Kind::box, x, y, width, height, 0, colour});
}

void Picture::text(double x, double y, const std::string& text, Colour colour, TextAnchor anchor) {
  shapes_.push_back({Shape::Kind::text, x, y, 0, 0, 0, colour, text, anchor});
}

std::string Picture::svg() const {
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"{2}\"/>\n",
      width_, height_, hex(kPaper));
  for (const Shape& s : shapes_) {
    switch (s.kind) {
      case Shape::Kind::line:
        out += fmt::format(
            "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" stroke-width=\"{:g}\" stroke-linecap=\"round\"/>\n",
            s.x0, s.y0, s.x1, s.y1, hex(s.colour), s.thickness);
        break;
      case Shape::Kind::disc:
        out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\"/>\n", s.x0, s.y0, s.x1,
                           hex(s.colour));
        break;
      case Shape::Kind::box:
        out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", s.x0,
                           s.y0, s.x1, s.y1, hex(s.colour));
        break;
      case Shape::Kind::text:
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", s.x0, s.y0,
                           anchor_name(s.anchor), hex(s.colour), escape_html(s.text));
        break;
    }
  }
  return out + "</svg>\n";
}

Result<void> Picture::write_png(const std::string& path) const {
  PixelCanvas canvas(width_ * kPngScale, height_ * kPngScale, kPaper);
  for (const Shape& s : shapes_) {
    const double x0 = s.x0 * kPngScale, y0 = s.y0 * kPngScale, x1 = s.x1 * kPngScale, y1 = s.y1 * kPngScale;
    switch (s.kind) {
      case Shape::Kind::line: canvas.line(x0, y0, x1, y1, s.thickness * kPngScale, s.colour); break;
      case Shape::Kind::disc: canvas.line(x0, y0, x0, y0, 2 * x1, s.colour); break;
      case Shape::Kind::box:
        for (double y = y0; y < y0 + y1; ++y) canvas.line(x0, y, x0 + x1, y, 1, s.colour);
        break;
      case Shape::Kind::text: {
        const std::string text = as_ascii(s.text);
        const int width = PixelCanvas::text_width(text, kPngFontScale);
        const int left = s.anchor == TextAnchor::start ? 0 : s.anchor == TextAnchor::middle ? width / 2 : width;
        canvas.text(static_cast<int>(x0) - left, static_cast<int>(y0) - kDotsHigh * kPngFontScale, text, kPngFontScale,
                    s.colour);
        break;
      }
    }
  }
  return canvas.write_png(path);
}

double round_step(double span, double count) {
  const double raw = span / count, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {5.0, 2.0})
    if (factor * power <= raw) return factor * power;
  return power;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t') out += c;  // XML has no others
    }
  }
  return out;
}

}  // namespace millrace
