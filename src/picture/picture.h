// Draws a chart with Cairo and Pango as PNG (twice the chart's size in pixels), SVG or PDF.
//
//   check_picture("--picture", path)    before the work whose result will be drawn
//   write_picture(chart, path, theme)   after it
//
// Any thread may call; each call draws on its own surface.
#pragma once

#include <string>

#include "base/result.h"
#include "picture/chart.h"
#include "picture/palette.h"

namespace millrace {

enum class PictureFormat : uint8_t { png, svg, pdf };

// Returns the format that a file's extension names. Errors: user.
Result<PictureFormat> picture_format(const std::string& path);

// Errors: user ("light" and "dark" exist).
Result<PictureTheme> find_picture_theme(const std::string& name);

// Checks that this machine can draw. `flag`: the option that needs it. Errors: unsupported (Cairo, Pango or a font is
// missing).
Result<void> check_drawing(const std::string& flag);

// Checks that a picture of this name can be drawn; "" needs none. `flag`: the option that names it. Errors: user (the
// extension), those of check_drawing().
Result<void> check_picture(const std::string& flag, const std::string& path);

// Returns the bytes of the picture. Errors: unsupported (Cairo is missing), user (the chart is too tall for a file).
Result<std::string> draw_chart(const Chart& chart, PictureFormat format, PictureTheme theme);

// Writes a picture in the format that the file's extension names, or in `format`. Errors: those of picture_format() and
// draw_chart(), resource (the file cannot be written).
Result<void> write_picture(const Chart& chart, const std::string& path, PictureTheme theme);
Result<void> write_picture(const Chart& chart, const std::string& path, PictureFormat format, PictureTheme theme);

// Returns two HTML images of the chart, light and dark. With kPictureStyle, a page shows the one that the reader's
// system prefers. The images load nothing.
Result<std::string> picture_html(const Chart& chart);
inline constexpr const char* kPictureStyle =
    "img.picture-light,img.picture-dark{max-width:100%;height:auto}img.picture-dark{display:none}"
    "@media screen and (prefers-color-scheme:dark){img.picture-light{display:none}img.picture-dark{display:inline}}";

}  // namespace millrace
