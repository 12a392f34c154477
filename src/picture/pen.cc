#include "picture/pen.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "picture/picture_text.h"

namespace millrace {
namespace {

// Polygons in units of the radius.
constexpr Corner kSquare[] = {{-0.88, -0.88}, {0.88, -0.88}, {0.88, 0.88}, {-0.88, 0.88}};
constexpr Corner kTriangle[] = {{0, -1.15}, {1.05, 0.75}, {-1.05, 0.75}};
constexpr Corner kDownwards[] = {{0, 1.15}, {1.05, -0.75}, {-1.05, -0.75}};
constexpr Corner kDiamond[] = {{0, -1.25}, {1.1, 0}, {0, 1.25}, {-1.1, 0}};

std::span<const Corner> polygon_of(Marker kind) {
  switch (kind) {
    case Marker::square: return kSquare;
    case Marker::triangle: return kTriangle;
    case Marker::down: return kDownwards;
    case Marker::diamond: return kDiamond;
    default: return {};
  }
}

// Lets lines end after the signs that separate the parts of "evictor=streamingllm:sinks=4,window=508".
std::string with_breaks(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == ':' || c == ',' || c == '/') out += "\xe2\x80\x8b";  // a space without width
  }
  return out;
}

}  // namespace

void Pen::set_colour(Colour colour, double opacity) {
  cairo_.cairo_set_source_rgba(context_, colour.r / 255.0, colour.g / 255.0, colour.b / 255.0, opacity);
}

void Pen::set_line(double width, std::span<const double> dashes) {
  std::vector<double> lengths(dashes.begin(), dashes.end());
  for (double& length : lengths) length *= width;
  cairo_.cairo_set_line_width(context_, width);
  cairo_.cairo_set_dash(context_, lengths.data(), static_cast<int>(lengths.size()), 0);
  cairo_.cairo_set_line_cap(context_, lengths.empty() || dashes[0] < 1 ? CAIRO_LINE_CAP_ROUND : CAIRO_LINE_CAP_BUTT);
  cairo_.cairo_set_line_join(context_, CAIRO_LINE_JOIN_ROUND);
}

void Pen::line(double x0, double y0, double x1, double y1) {
  cairo_.cairo_move_to(context_, x0, y0);
  cairo_.cairo_line_to(context_, x1, y1);
  cairo_.cairo_stroke(context_);
}

void Pen::path(std::span<const Corner> corners) {
  for (size_t i = 0; i < corners.size(); ++i)
    (i == 0 ? cairo_.cairo_move_to : cairo_.cairo_line_to)(context_, corners[i].x, corners[i].y);
  cairo_.cairo_stroke(context_);
}

void Pen::dots(std::span<const Corner> centres, double radius) {
  set_line(2 * radius);
  for (const Corner& c : centres) {
    cairo_.cairo_move_to(context_, c.x, c.y);
    cairo_.cairo_line_to(context_, c.x, c.y);
  }
  cairo_.cairo_stroke(context_);
}

void Pen::box(double x, double y, double width, double height) {
  cairo_.cairo_rectangle(context_, x, y, width, height);
  cairo_.cairo_fill(context_);
}

void Pen::trace(Marker kind, double x, double y, double radius) {
  cairo_.cairo_new_path(context_);
  const auto polygon = polygon_of(kind);
  if (polygon.empty()) return cairo_.cairo_arc(context_, x, y, radius, 0, 2 * std::numbers::pi);
  for (size_t i = 0; i < polygon.size(); ++i)
    (i == 0 ? cairo_.cairo_move_to : cairo_.cairo_line_to)(context_, x + radius * polygon[i].x,
                                                           y + radius * polygon[i].y);
  cairo_.cairo_close_path(context_);
}

void Pen::marker(Marker kind, double x, double y, double radius, Colour colour, bool hollow, Colour paper) {
  if (kind == Marker::cross || kind == Marker::plus) {
    set_colour(colour);
    set_line(2.2);
    const double reach = kind == Marker::cross ? radius * 0.8 : radius, slant = kind == Marker::cross ? reach : 0;
    line(x - reach, y - slant, x + reach, y + slant);
    return line(x - slant, y + reach, x + slant, y - reach);
  }
  trace(kind, x, y, radius);
  hollow = hollow || kind == Marker::ring;
  set_colour(hollow ? paper : colour);
  cairo_.cairo_fill_preserve(context_);
  set_colour(hollow ? colour : paper);  // a rim of paper separates overlapping markers
  set_line(hollow ? 2 : 1);
  cairo_.cairo_stroke(context_);
}

PangoLayout* Pen::layout(std::string_view text, const TextStyle& style, Across across) const {
  PangoLayout* made = cairo_.pango_cairo_create_layout(context_);
  cairo_font_options_t* options = cairo_.cairo_font_options_create();
  cairo_.cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_.cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
  cairo_.cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);  // same sizes at any scale
  cairo_.pango_cairo_context_set_font_options(cairo_.pango_layout_get_context(made), options);
  cairo_.cairo_font_options_destroy(options);
  PangoFontDescription* font = cairo_.pango_font_description_new();
  cairo_.pango_font_description_set_family_static(font, "DejaVu Sans, sans-serif");
  cairo_.pango_font_description_set_weight(font, style.bold ? PANGO_WEIGHT_BOLD : PANGO_WEIGHT_NORMAL);
  cairo_.pango_font_description_set_absolute_size(font, style.size * PANGO_SCALE);
  cairo_.pango_layout_set_font_description(made, font);
  cairo_.pango_font_description_free(font);
  cairo_.pango_layout_set_auto_dir(made, FALSE);
  std::string clean = drawable_text(text);
  if (style.max_lines > 1) clean = with_breaks(clean);
  cairo_.pango_layout_set_text(made, clean.data(), static_cast<int>(clean.size()));
  if (style.max_width > 0) {
    cairo_.pango_layout_set_width(made, static_cast<int>(std::ceil(style.max_width * PANGO_SCALE)));
    cairo_.pango_layout_set_height(made, -std::max(style.max_lines, 1));
    cairo_.pango_layout_set_wrap(made, PANGO_WRAP_WORD_CHAR);
    cairo_.pango_layout_set_ellipsize(made, PANGO_ELLIPSIZE_END);
    PangoAttrList* attributes = cairo_.pango_attr_list_new();
    cairo_.pango_attr_list_insert(attributes, cairo_.pango_attr_insert_hyphens_new(FALSE));
    cairo_.pango_layout_set_attributes(made, attributes);
    cairo_.pango_attr_list_unref(attributes);
    cairo_.pango_layout_set_alignment(made, across == Across::left    ? PANGO_ALIGN_LEFT
                                            : across == Across::right ? PANGO_ALIGN_RIGHT
                                                                      : PANGO_ALIGN_CENTER);
  }
  return made;
}

TextSize Pen::size_of(PangoLayout* layout) const {
  int width = 0, height = 0;
  cairo_.pango_layout_get_size(layout, &width, &height);
  return {static_cast<double>(width) / PANGO_SCALE, static_cast<double>(height) / PANGO_SCALE};
}

TextSize Pen::measure(std::string_view text, const TextStyle& style) const {
  PangoLayout* made = layout(text, style, Across::left);
  const TextSize size = size_of(made);
  cairo_.g_object_unref(made);
  return size;
}

void Pen::text(double x, double y, std::string_view text, const TextStyle& style, Colour colour, Across across,
               Down down) {
  TextStyle fitted = style;
  if (style.max_width > 0) fitted.max_width = measure(text, style).width + 0.5;  // lines are aligned in their own box
  PangoLayout* made = layout(text, fitted, across);
  const TextSize size = size_of(made);
  set_colour(colour);
  cairo_.cairo_move_to(context_,
                       x - (across == Across::left    ? 0
                            : across == Across::right ? size.width
                                                      : size.width / 2),
                       y - (down == Down::top      ? 0
                            : down == Down::bottom ? size.height
                                                   : size.height / 2));
  cairo_.pango_cairo_show_layout(context_, made);
  cairo_.cairo_new_path(context_);
  cairo_.g_object_unref(made);
}

void Pen::upright_text(double x, double y, std::string_view text, const TextStyle& style, Colour colour) {
  cairo_.cairo_save(context_);
  cairo_.cairo_translate(context_, x, y);
  cairo_.cairo_rotate(context_, -std::numbers::pi / 2);
  this->text(0, 0, text, style, colour, Across::middle, Down::middle);
  cairo_.cairo_restore(context_);
}

}  // namespace millrace
