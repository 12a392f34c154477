// Pixels of the canvas, and shapes as SVG.
#include "picture/picture.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(PixelCanvas, DrawsAndClips) {
  PixelCanvas canvas(40, 20, {255, 255, 255});
  canvas.line(-50, 10, 90, 10, 2, {0, 0, 0});
  EXPECT_EQ(canvas.at(20, 10).r, 0);
  EXPECT_EQ(canvas.at(20, 3).r, 255);
  canvas.text(2, 2, "L", 1, {200, 0, 0});
  EXPECT_EQ(canvas.at(2, 2).g, 0);
  EXPECT_EQ(canvas.at(3, 2).g, 255);
  EXPECT_EQ(canvas.at(6, 8).g, 0);  // the foot of the L
  canvas.text(1000, 1000, "outside", 3, {0, 0, 0});
}

TEST(PixelCanvas, DrawsLowerCaseAndSigns) {
  PixelCanvas canvas(40, 20, {255, 255, 255});
  canvas.text(2, 2, "_l", 1, {0, 0, 0});
  EXPECT_EQ(canvas.at(2, 8).r, 0);  // the line at the foot
  EXPECT_EQ(canvas.at(2, 2).r, 255);
  EXPECT_EQ(canvas.at(10, 5).r, 0);  // the stroke of the l
}

TEST(Pictures, ShapesAsSvg) {
  Picture picture(100, 50);
  picture.line(0, 1, 2, 3, 1.5, {255, 0, 16});
  picture.disc(5, 6, 4, {0, 0, 0});
  picture.box(1, 2, 3, 4, {1, 2, 3});
  picture.text(7, 8, "a < \"b\" & c", {0, 0, 0}, TextAnchor::end);
  const std::string svg = picture.svg();
  for (const char* part : {"viewBox=\"0 0 100 50\"", "d=\"M0.0 1.0L2.0 3.0\" stroke=\"#ff0010\"", "r=\"4\"",
                           "width=\"3.0\"", ">a &lt; &quot;b&quot; &amp; c</text>", "text-anchor=\"end\""})
    EXPECT_NE(svg.find(part), std::string::npos) << part << "\n" << svg;
  EXPECT_EQ(Picture::text_width("abc"), 18);
  EXPECT_EQ(Picture::text_width("▲"), 6);
}

TEST(Pictures, StepsAreRound) {
  EXPECT_DOUBLE_EQ(round_step(10, 4), 2);
  EXPECT_DOUBLE_EQ(round_step(0.5, 4), 0.1);
  EXPECT_DOUBLE_EQ(round_step(1000, 5), 200);
}

}  // namespace
}  // namespace millrace
