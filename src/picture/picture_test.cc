// Charts as files: formats, extents, hostile values, and what happens where Cairo is missing.
#include "picture/picture.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "picture/cairo_loader.h"
#include "picture/picture_text.h"

namespace millrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ChartPanel points_panel(int points, const std::string& name) {
  ChartPanel panel{.title = "panel"};
  panel.x = {.title = "speed", .unit = "tokens/s", .better = BetterEnd::high};
  panel.y = {.title = "loss", .better = BetterEnd::low, .better_at_top = true};
  ChartSeries series{.name = "series", .mark = ChartMark::points};
  for (int i = 0; i < points; ++i) {
    const double x = 100 + 37 * (i % 7), y = 5 + 0.3 * (i % 5);
    series.points.push_back({{x, x - 5, x + 5}, {y, y - 0.1, y + 0.1}, name + std::to_string(i)});
  }
  panel.series = {series};
  return panel;
}

Chart some_chart() {
  Chart chart{.title = "A title", .subtitle = "a subtitle", .note = "a note", .columns = 2};
  ChartPanel lines{.title = "lines", .names = SeriesNames::at_line_ends};
  for (int sign = 0; sign < 9; ++sign) {
    ChartSeries line{
        .name = "line " + std::to_string(sign), .mark = sign % 2 ? ChartMark::steps : ChartMark::line, .sign = sign};
    for (int i = 0; i < 30; ++i) line.points.push_back({{i * 1.0}, {sign + 0.1 * i}});
    lines.series.push_back(line);
  }
  ChartPanel bars{.title = "bars", .categories = {"one", "two"}};
  bars.series = {{.name = "a", .mark = ChartMark::bars, .points = {{{10, 9, 11}, {0}}, {{20}, {1}}}},
                 {.name = "limit", .mark = ChartMark::limits, .points = {{{25}, {0}}, {{30}, {1}}}, .sign = 1}};
  ChartPanel heat{.title = "heat"};
  heat.heat = HeatMap{{"10 %", "90 %"}, {"100", "200"}, {{0.5, 1}, {0, NAN}}};
  chart.panels = {points_panel(6, "name "), lines, bars, heat};
  return chart;
}

// The width and the height in the header of a PNG.
std::pair<uint32_t, uint32_t> png_size(const std::string& png) {
  const auto number = [&](size_t at) {
    uint32_t out = 0;
    for (size_t i = 0; i < 4; ++i) out = out << 8 | static_cast<uint8_t>(png[at + i]);
    return out;
  };
  return {number(16), number(20)};
}

std::string drawn(const Chart& chart, PictureFormat format = PictureFormat::svg,
                  PictureTheme theme = PictureTheme::light) {
  auto out = draw_chart(chart, format, theme);
  EXPECT_TRUE(out.ok()) << out.error().message;
  return out.ok() ? *out : "";
}

TEST(Pictures, EveryFormatHasItsBytesAndItsSize) {
  const Chart chart = some_chart();
  const std::string svg = drawn(chart), png = drawn(chart, PictureFormat::png), pdf = drawn(chart, PictureFormat::pdf);
  EXPECT_TRUE(png.starts_with("\x89PNG\r\n")) << png.substr(0, 8);
  EXPECT_TRUE(pdf.starts_with("%PDF-"));
  const size_t at = svg.find("viewBox=\"0 0 960 ");
  ASSERT_NE(at, std::string::npos) << svg.substr(0, 300);
  const auto [width, height] = png_size(png);
  EXPECT_EQ(width, 1920u);
  EXPECT_EQ(height, 2u * static_cast<uint32_t>(std::atoi(svg.c_str() + at + std::strlen("viewBox=\"0 0 960 "))));
  EXPECT_NE(svg.find("<title>A title</title>\n<desc>a subtitle</desc>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_TRUE(svg == drawn(chart));  // the same chart is the same picture
  EXPECT_FALSE(svg == drawn(chart, PictureFormat::svg, PictureTheme::dark));
}

TEST(Pictures, ThemesHaveTheirPaper) {
  const Chart chart = some_chart();
  EXPECT_NE(drawn(chart).find("rgb(100%,100%,100%)"), std::string::npos);
  EXPECT_NE(drawn(chart, PictureFormat::svg, PictureTheme::dark).find("rgb(7.84%,9.41%,11.37%)"), std::string::npos);
  EXPECT_FALSE(find_picture_theme("sepia").ok());
  EXPECT_EQ(*find_picture_theme("dark"), PictureTheme::dark);
}

TEST(Pictures, TheExtensionNamesTheFormat) {
  EXPECT_EQ(*picture_format("a/b.PNG"), PictureFormat::png);
  EXPECT_EQ(*picture_format("b.svg"), PictureFormat::svg);
  EXPECT_EQ(*picture_format("x.tar.pdf"), PictureFormat::pdf);
  for (const char* bad : {"", "png", "a.jpeg", "a.png.gz", "folder.svg/file"}) {
    const auto format = picture_format(bad);
    ASSERT_FALSE(format.ok()) << bad;
    EXPECT_EQ(format.error().kind, ErrorKind::user);
    EXPECT_NE(format.error().message.find("ends in .png, .svg or .pdf"), std::string::npos);
  }
  EXPECT_EQ(check_picture("--picture", "a.gif").error().message.substr(0, 15), "--picture a.gif");
  EXPECT_TRUE(check_picture("--picture", "").ok());
  EXPECT_TRUE(check_picture("--picture", "a.png").ok());
}

TEST(Pictures, FilesAreWritten) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("picture." + std::to_string(getpid()) + ".pdf")).string();
  ASSERT_TRUE(write_picture(some_chart(), path, PictureTheme::light).ok());
  EXPECT_GT(std::filesystem::file_size(path), 1000u);
  std::filesystem::remove(path);
  EXPECT_FALSE(write_picture(some_chart(), "/no/such/folder/x.png", PictureTheme::light).ok());
  EXPECT_FALSE(write_picture(some_chart(), path + ".bmp", PictureTheme::light).ok());
}

TEST(Pictures, AMissingLibraryIsNamedWithItsPackage) {
  for (const char* missing : {"libcairo.so.2", "libpango-1.0.so.0", "libpangocairo-1.0.so.0"}) {
    const auto found =
        check_cairo([&](const std::string& file) { return file == missing ? nullptr : open_picture_library(file); });
    ASSERT_FALSE(found.ok()) << missing;
    EXPECT_EQ(found.error().kind, ErrorKind::unsupported);
    EXPECT_NE(found.error().message.find(missing), std::string::npos) << found.error().message;
    EXPECT_NE(found.error().message.find("libpangocairo-1.0-0"), std::string::npos);
  }
  // A library that lacks the functions: the C library in place of each.
  const auto found = check_cairo([](const std::string&) { return dlopen("libc.so.6", RTLD_NOW); });
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("have no "), std::string::npos) << found.error().message;
  EXPECT_TRUE(check_cairo().ok());
}

TEST(Pictures, HostileTextIsDrawn) {
  const std::string texts[] = {"",
                               std::string(100000, 'W'),
                               "\xff\xfe\x80 \xc3",
                               std::string("a\0b\n\r\t\x01", 7),
                               "<&>\"'",
                               "\xe2\x80\xae"
                               "reversed",
                               std::string(3000, ' '),
                               "\xf0\x9f\xa6\x99\xe4\xb8\xad\xd7\xa9"};
  for (const std::string& text : texts) {
    Chart chart = some_chart();
    chart.title = chart.subtitle = chart.note = text;
    for (ChartPanel& panel : chart.panels) {
      panel.title = panel.x.title = panel.x.unit = panel.y.title = panel.empty = text;
      for (std::string& category : panel.categories) category = text;
      for (ChartSeries& series : panel.series) {
        series.name = text;
        for (ChartPoint& point : series.points) point.name = text;
      }
      if (panel.heat)
        for (auto* names : {&panel.heat->rows, &panel.heat->columns})
          for (std::string& name : *names) name = text;
    }
    const std::string svg = drawn(chart);
    EXPECT_NE(svg.find("</svg>"), std::string::npos);
    EXPECT_EQ(svg.find('\x01'), std::string::npos);
    EXPECT_LT(svg.size(), 2u << 20);
    EXPECT_FALSE(drawn(chart, PictureFormat::png).empty());
    EXPECT_FALSE(drawn(chart, PictureFormat::pdf).empty());
    EXPECT_TRUE(picture_html(chart).ok());
  }
}

TEST(Pictures, HostileValuesAreLeftOutOrDrawn) {
  const double values[] = {NAN, kInfinity, -kInfinity, 1e308, -1e308, 1e-308, 0, -1, 1e17, 1e17 + 16};
  for (const double a : values)
    for (const double b : values) {
      Chart chart = some_chart();
      for (ChartPanel& panel : chart.panels) {
        panel.x.scaling = a > b ? AxisScaling::logarithmic : AxisScaling::automatic;
        for (ChartSeries& series : panel.series)
          series.points = {{{a, b, a}, {b, a, b}, "one"}, {{b}, {a}, "two"}, {{1}, {a}, ""}, {{b}, {0}, ""}};
        if (panel.heat) panel.heat->values = {{a, b}, {}}, panel.heat->low = b, panel.heat->high = a;
      }
      const std::string svg = drawn(chart);
      EXPECT_EQ(svg.find("nan"), std::string::npos) << a << " " << b;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << a << " " << b;
    }
}

TEST(Pictures, EmptyChartsAreDrawn) {
  EXPECT_FALSE(drawn({}).empty());
  Chart chart{.panels = {{}, {}, {}}, .columns = 100, .width = NAN, .plot_height = -1};
  chart.panels[1].heat = HeatMap{};
  chart.panels[2].categories = {"one"};
  EXPECT_FALSE(drawn(chart).empty());
  chart.columns = -3;
  EXPECT_FALSE(drawn(chart, PictureFormat::png).empty());
}

TEST(Pictures, ManyPointsAndPanels) {
  Chart chart{.panels = {points_panel(5000, "a configuration with a long name, number ")}};
  ChartSeries dots{.name = "dots", .mark = ChartMark::dots};
  for (int i = 0; i < 1000000; ++i) dots.points.push_back({{i * 1.0}, {i % 100 * 1.0}});
  chart.panels.push_back({.series = {dots}});
  EXPECT_LT(drawn(chart).size(), 8u << 20);
  chart.panels.assign(60, points_panel(2, ""));
  const auto tall = draw_chart(chart, PictureFormat::png, PictureTheme::light);
  ASSERT_FALSE(tall.ok());
  EXPECT_NE(tall.error().message.find("pixels tall"), std::string::npos);
}

TEST(Pictures, HtmlHasBothThemesAndLoadsNothing) {
  Chart chart = some_chart();
  chart.title = "a \"<b>\" & c";
  const std::string html = *picture_html(chart);
  EXPECT_NE(html.find("<img class=\"picture-light\" alt=\"a &quot;&lt;b&gt;&quot; &amp; c\" src=\"data:image/svg+xml,"),
            std::string::npos);
  EXPECT_NE(html.find("<img class=\"picture-dark\""), std::string::npos);
  size_t quotes = 0, ends = 0;
  for (const char c : html) quotes += c == '"', ends += c == '>';
  EXPECT_EQ(quotes, 12u);  // no quote or bracket of an SVG ends an attribute or a tag
  EXPECT_EQ(ends, 2u);
}

TEST(PictureText, IsValidAndShort) {
  EXPECT_EQ(drawable_text("plain é 中 🦙"), "plain é 中 🦙");
  EXPECT_EQ(drawable_text("a\nb\x7f"), "a b ");
  EXPECT_EQ(drawable_text("\xc0\xaf\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(drawable_text("\xe4\xb8"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(drawable_text("éééé", 3), "ééé…");
  EXPECT_EQ(drawable_text("ééé", 3), "ééé");
  EXPECT_EQ(drawable_text("\xe2\x80\xae"
                          "x\xc2\x85"),
            " x ");
  EXPECT_EQ(escape_html("a < \"b\" & c\x01"), "a &lt; &quot;b&quot; &amp; c");
}

}  // namespace
}  // namespace millrace
