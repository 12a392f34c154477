// Places names next to points so that no name covers another name or a point. Greedy: names are placed in their order,
// each at the cheapest free place around its point; a name far from its point has a leader line.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace millrace {

struct PlacedBox {
  double left = 0, top = 0, right = 0, bottom = 0;

  bool overlaps(const PlacedBox& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
  bool contains(const PlacedBox& other) const {
    return other.left >= left && other.right <= right && other.top >= top && other.bottom <= bottom;
  }
};

struct PlacedSegment {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
};

struct NamedPoint {
  double x = 0, y = 0;           // centre of the mark
  double width = 0, height = 0;  // size of the name
};

struct PlacedName {
  PlacedBox box;
  std::optional<PlacedSegment> leader;  // from the edge of the mark to the name
};

// `radius`: of a mark. `lines`: error bars and curves, which names avoid where they can. Returns one element for each
// point; empty: there is no free place inside `frame`.
std::vector<std::optional<PlacedName>> place_names(const PlacedBox& frame, std::span<const NamedPoint> points,
                                                   double radius, std::span<const PlacedSegment> lines);

// Moves the centres of rows of `height` so that no two overlap and all are between `top` and `bottom`, in their order
// of height. If there is no room for all, the rows share what there is.
std::vector<double> spread_rows(std::span<const double> centres, double height, double top, double bottom);

}  // namespace millrace
