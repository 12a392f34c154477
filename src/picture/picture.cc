#include "picture/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/pending_file.h"
#include "picture/cairo_library.h"
#include "picture/panel_drawing.h"
#include "picture/picture_text.h"

namespace millrace {
namespace {

constexpr double kMargin = 22, kColumnGap = 34, kRowGap = 26, kPngScale = 2;
constexpr double kTallest = 15000;  // Cairo's images have at most 32767 rows
constexpr TextStyle kChartTitle{.size = 18, .bold = true, .max_lines = 2};
constexpr TextStyle kSubtitle{.size = 13, .max_lines = 4};
constexpr TextStyle kNote{.size = 12, .max_lines = 6};

TextStyle within(TextStyle style, double width) {
  style.max_width = width;
  return style;
}

// A chart whose parts have been measured.
class ChartDrawing {
 public:
  ChartDrawing(const Pen& pen, const Palette& palette, const Chart& chart)
      : palette_(palette), chart_(chart), width_(chart.width > 200 ? std::min(chart.width, 4000.0) : 200) {
    const auto most = std::max(1, static_cast<int>(std::min<size_t>(chart.panels.size(), 64)));
    columns_ = static_cast<size_t>(std::clamp(chart.columns, 1, most));
    const double gaps = kColumnGap * static_cast<double>(columns_ - 1);
    panel_width_ = (inner() - gaps) / static_cast<double>(columns_);
    for (const ChartPanel& panel : chart.panels)
      panels_.push_back(panel.heat ? make_heat_drawing(pen, palette, panel, panel_width_)
                                   : make_axes_drawing(pen, palette, panel, panel_width_,
                                                       std::clamp(chart.plot_height, 40.0, 2000.0)));
    const auto tall = [&](const std::string& text, const TextStyle& style, double gap) {
      return text.empty() ? 0 : pen.measure(text, within(style, inner())).height + gap;
    };
    title_ = tall(chart.title, kChartTitle, 4);
    subtitle_ = tall(chart.subtitle, kSubtitle, 4);
    height_ = kMargin + title_ + subtitle_ + (title_ + subtitle_ > 0 ? 14 : 0);
    for (size_t first = 0; first < panels_.size(); first += columns_) {
      rows_.push_back(measure_row(first));
      height_ += rows_.back().height() + (first > 0 ? kRowGap : 0);
    }
    height_ += tall(chart.note, kNote, 14) + kMargin * 0.8;
  }

  double width() const { return width_; }
  double height() const { return std::ceil(height_); }

  void draw(Pen& pen) const {
    pen.set_colour(palette_.paper);
    pen.box(0, 0, width_, height());
    double y = kMargin;
    pen.text(kMargin, y, chart_.title, within(kChartTitle, inner()), palette_.ink);
    pen.text(kMargin, y + title_, chart_.subtitle, within(kSubtitle, inner()), palette_.soft);
    y += title_ + subtitle_ + (title_ + subtitle_ > 0 ? 14 : 0);
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (row > 0) y += kRowGap;
      for (size_t i = row * columns_; i < std::min(panels_.size(), (row + 1) * columns_); ++i)
        panels_[i]->draw(pen, kMargin + (panel_width_ + kColumnGap) * static_cast<double>(i % columns_), y,
                         rows_[row].head);
      y += rows_[row].height();
    }
    pen.text(kMargin, y + 14, chart_.note, within(kNote, inner()), palette_.soft);
  }

 private:
  struct Row {
    double head = 0, below = 0;
    double height() const { return head + below; }
  };

  double inner() const { return width_ - 2 * kMargin; }

  Row measure_row(size_t first) const {
    Row row;
    for (size_t i = first; i < std::min(panels_.size(), first + columns_); ++i) {
      row.head = std::max(row.head, panels_[i]->head_height());
      row.below = std::max(row.below, panels_[i]->plot_height() + panels_[i]->foot_height());
    }
    return row;
  }

  const Palette& palette_;
  const Chart& chart_;
  double width_, height_ = 0, panel_width_ = 0, title_ = 0, subtitle_ = 0;
  size_t columns_ = 1;
  std::vector<std::unique_ptr<PanelDrawing>> panels_;
  std::vector<Row> rows_;
};

cairo_status_t append(void* out, const unsigned char* data, unsigned length) {
  static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

// A surface and its context, destroyed together. The surface is finished first, which completes the bytes of a file.
class CairoSurface {
 public:
  CairoSurface(const CairoLibrary& cairo, cairo_surface_t* surface)
      : cairo_(cairo), surface_(surface), context_(cairo.cairo_create(surface)) {}
  CairoSurface(const CairoSurface&) = delete;
  CairoSurface& operator=(const CairoSurface&) = delete;
  ~CairoSurface() {
    cairo_.cairo_destroy(context_);
    cairo_.cairo_surface_destroy(surface_);
  }

  cairo_surface_t* surface() { return surface_; }
  cairo_t* context() { return context_; }
  cairo_status_t finish() {
    const cairo_status_t drawn = cairo_.cairo_status(context_);
    cairo_.cairo_surface_finish(surface_);
    return drawn != CAIRO_STATUS_SUCCESS ? drawn : cairo_.cairo_surface_status(surface_);
  }

 private:
  const CairoLibrary& cairo_;
  cairo_surface_t* surface_;
  cairo_t* context_;
};

// Cuts numbers after two decimals, a hundredth of a pixel; Cairo writes six.
std::string with_short_numbers(std::string_view svg) {
  std::string out;
  size_t decimals = 0;  // digits since the last point; 0: not in a fraction
  for (const char c : svg) {
    const bool digit = c >= '0' && c <= '9';
    if (c == '.')
      decimals = 1;
    else
      decimals = digit && decimals > 0 ? decimals + 1 : 0;
    if (decimals <= 3) out += c;
  }
  return out;
}

// Removes attributes whose value is the default of SVG. stroke-miterlimit has no effect, because lines have round
// joins.
void remove_defaults(std::string& svg) {
  for (const std::string_view text :
       {"fill-opacity:1;", "stroke-opacity:1;", "stroke-miterlimit:10;", "fill-rule:nonzero;"})
    for (size_t at = 0; (at = svg.find(text, at)) != std::string::npos;) svg.erase(at, text.size());
}

// Removes the number that Cairo gives to a surface, so that equal charts are equal files.
void remove_surface_id(std::string& svg) {
  constexpr std::string_view kBefore = "<g id=\"surface";
  const size_t start = svg.find(kBefore), end = svg.find("\">", start);
  if (start != std::string::npos && end != std::string::npos) svg.replace(start, end + 2 - start, "<g>");
}

// Cairo draws text as shapes; a title lets readers' programs and searches find what the picture is about.
void add_svg_title(std::string& svg, const Chart& chart) {
  const size_t start = svg.find("<svg"), end = svg.find('>', start);
  if (start == std::string::npos || end == std::string::npos) return;
  const std::string title = escape_html(drawable_text(chart.title)), about = escape_html(drawable_text(chart.subtitle));
  svg.insert(end + 1, fmt::format("\n<title>{}</title>{}", title, about.empty() ? "" : "\n<desc>" + about + "</desc>"));
}

cairo_surface_t* make_surface(const CairoLibrary& cairo, PictureFormat format, const ChartDrawing& drawing,
                              std::string& out) {
  const double width = drawing.width(), height = drawing.height();
  switch (format) {
    case PictureFormat::svg: {
      cairo_surface_t* surface = cairo.cairo_svg_surface_create_for_stream(append, &out, width, height);
      cairo.cairo_svg_surface_set_document_unit(surface, CAIRO_SVG_UNIT_PX);
      return surface;
    }
    case PictureFormat::pdf: return cairo.cairo_pdf_surface_create_for_stream(append, &out, width, height);
    case PictureFormat::png: break;
  }
  return cairo.cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(std::ceil(width * kPngScale)),
                                          static_cast<int>(std::ceil(height * kPngScale)));
}

// Encodes the characters of an SVG that a URL in quotes must not have.
std::string url_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = c > ' ' && c != '"' && c != '#' && c != '%' && c != '&' && c != '<' && c != '>' && c != '\'' &&
                       static_cast<unsigned char>(c) < 0x7f;
    if (plain || c == ' ')
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

Result<PictureFormat> picture_format(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (extension == ".png") return PictureFormat::png;
  if (extension == ".svg") return PictureFormat::svg;
  if (extension == ".pdf") return PictureFormat::pdf;
  return Error::user(fmt::format("{}: the name of a picture ends in .png, .svg or .pdf", path));
}

Result<PictureTheme> find_picture_theme(const std::string& name) {
  if (name == "light") return PictureTheme::light;
  if (name == "dark") return PictureTheme::dark;
  return Error::user(fmt::format("picture theme {}: there are light and dark", name));
}

Result<void> check_drawing(const std::string& flag) {
  if (auto library = cairo_library(); !library.ok())
    return Error{library.error().kind, fmt::format("{}: {}", flag, library.error().message)};
  return {};
}

Result<void> check_picture(const std::string& flag, const std::string& path) {
  if (path.empty()) return {};
  if (auto format = picture_format(path); !format.ok())
    return Error{format.error().kind, fmt::format("{} {}", flag, format.error().message)};
  return check_drawing(flag);
}

Result<std::string> draw_chart(const Chart& chart, PictureFormat format, PictureTheme theme) {
  MILLRACE_TRY(const CairoLibrary* cairo, cairo_library());
  const Palette& palette = palette_of(theme);
  CairoSurface scratch(*cairo, cairo->cairo_image_surface_create(CAIRO_FORMAT_RGB24, 1, 1));
  const ChartDrawing drawing(Pen(*cairo, scratch.context()), palette, chart);
  if (drawing.height() > kTallest)
    return Error::user(
        fmt::format("picture: {:.0f} pixels tall, more than the {:.0f} that a file can have; draw fewer "
                    "rows or panels in one picture",
                    drawing.height(), kTallest));
  std::string out;
  CairoSurface surface(*cairo, make_surface(*cairo, format, drawing, out));
  if (format == PictureFormat::png) cairo->cairo_scale(surface.context(), kPngScale, kPngScale);
  if (format == PictureFormat::pdf)
    cairo->cairo_pdf_surface_set_metadata(surface.surface(), CAIRO_PDF_METADATA_TITLE,
                                          drawable_text(chart.title).c_str());
  Pen pen(*cairo, surface.context());
  drawing.draw(pen);
  cairo_status_t status = format == PictureFormat::png
                              ? cairo->cairo_surface_write_to_png_stream(surface.surface(), append, &out)
                              : CAIRO_STATUS_SUCCESS;
  if (const cairo_status_t drawn = surface.finish(); status == CAIRO_STATUS_SUCCESS) status = drawn;
  if (status != CAIRO_STATUS_SUCCESS)
    return Error::resource(fmt::format("picture: cannot be drawn: {}", cairo->cairo_status_to_string(status)));
  if (format == PictureFormat::svg) {
    out = with_short_numbers(out);
    remove_defaults(out);
    remove_surface_id(out);
    add_svg_title(out, chart);
  }
  return out;
}

Result<void> write_picture(const Chart& chart, const std::string& path, PictureTheme theme) {
  MILLRACE_TRY(const PictureFormat format, picture_format(path));
  return write_picture(chart, path, format, theme);
}

Result<void> write_picture(const Chart& chart, const std::string& path, PictureFormat format, PictureTheme theme) {
  MILLRACE_TRY(const std::string bytes, draw_chart(chart, format, theme));
  return write_whole_file(path, bytes);
}

Result<std::string> picture_html(const Chart& chart) {
  MILLRACE_TRY(const std::string light, draw_chart(chart, PictureFormat::svg, PictureTheme::light));
  MILLRACE_TRY(const std::string dark, draw_chart(chart, PictureFormat::svg, PictureTheme::dark));
  const std::string about = escape_html(drawable_text(chart.title));
  const auto image = [&](const char* theme, const std::string& svg) {
    return fmt::format("<img class=\"picture-{}\" alt=\"{}\" src=\"data:image/svg+xml,{}\">\n", theme, about,
                       url_encoded(svg));
  };
  return image("light", light) + image("dark", dark);
}

}  // namespace millrace
