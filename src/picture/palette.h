// Colours, markers and dash patterns of pictures. The colours of series are those of Okabe and Ito ("Color Universal
// Design", 2008), which people with any colour vision can distinguish; each has its own marker and dashes as well.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace {

struct Colour {
  uint8_t r = 0, g = 0, b = 0;
};

enum class PictureTheme : uint8_t { light, dark };

enum class Marker : uint8_t { disc, square, triangle, diamond, cross, down, plus, ring };

struct Palette {
  Colour paper, ink, soft, grid, frame, muted;
  Colour none, full;  // ends of a heat map
  std::array<Colour, 8> series;
};

// The eight colours in the order in which each paper shows them best.
inline constexpr Palette kLightPalette{{255, 255, 255},
                                       {31, 35, 40},
                                       {89, 96, 105},
                                       {230, 233, 237},
                                       {150, 158, 167},
                                       {140, 147, 156},
                                       {238, 243, 248},
                                       {0, 84, 147},
                                       {{{0, 114, 178},
                                         {213, 94, 0},
                                         {0, 158, 115},
                                         {204, 121, 167},
                                         {230, 159, 0},
                                         {86, 180, 233},
                                         {31, 35, 40},
                                         {178, 166, 20}}}};
inline constexpr Palette kDarkPalette{{20, 24, 29},
                                      {232, 235, 238},
                                      {164, 172, 181},
                                      {43, 49, 56},
                                      {105, 115, 125},
                                      {128, 137, 147},
                                      {33, 40, 48},
                                      {116, 194, 240},
                                      {{{86, 180, 233},
                                        {230, 159, 0},
                                        {0, 178, 130},
                                        {204, 121, 167},
                                        {240, 228, 66},
                                        {233, 112, 30},
                                        {232, 235, 238},
                                        {60, 140, 215}}}};

inline const Palette& palette_of(PictureTheme theme) {
  return theme == PictureTheme::dark ? kDarkPalette : kLightPalette;
}

inline Colour series_colour(const Palette& palette, int sign) {
  return sign < 0 ? palette.muted : palette.series[static_cast<size_t>(sign) % palette.series.size()];
}

// The colours return after eight series, with another marker and other dashes each time.
inline size_t shape_of(int sign) { return static_cast<size_t>(sign + 3 * (sign / 8)) % 8; }

inline Marker series_marker(int sign) {
  constexpr std::array<Marker, 8> kMarkers = {Marker::disc,  Marker::square, Marker::triangle, Marker::diamond,
                                              Marker::cross, Marker::down,   Marker::plus,     Marker::ring};
  return sign < 0 ? Marker::disc : kMarkers[shape_of(sign)];
}

// Lengths of strokes and gaps in line widths; empty: solid.
inline std::span<const double> series_dashes(int sign) {
  static constexpr double kDash[] = {4, 2}, kDot[] = {0.1, 2}, kDashDot[] = {5, 2, 0.1, 2}, kLong[] = {9, 3},
                          kDashDotDot[] = {5, 2, 0.1, 2, 0.1, 2}, kShort[] = {2, 2.4}, kUneven[] = {8, 2, 2, 2};
  switch (sign < 0 ? 0 : shape_of(sign)) {
    case 1: return kDash;
    case 2: return kDashDot;
    case 3: return kDot;
    case 4: return kLong;
    case 5: return kDashDotDot;
    case 6: return kShort;
    case 7: return kUneven;
    default: return {};
  }
}

}  // namespace millrace
