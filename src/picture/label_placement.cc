#include "picture/label_placement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

namespace millrace {
namespace {

constexpr double kGap = 3;                                // between a mark and its name
constexpr double kLeaderFrom = 12;                        // distance from which a name needs a leader line
constexpr double kCrossedLine = 14, kCrossedLeader = 60;  // costs, in pixels of distance
constexpr int kDirections = 16;
constexpr std::array<double, 11> kDistances = {0, 5, 11, 20, 32, 46, 64, 86, 112, 144, 184};

// Liang-Barsky: whether a part of the segment is inside the box.
bool crosses(const PlacedSegment& s, const PlacedBox& box) {
  double from = 0, to = 1;
  const auto clip = [&](double start, double step, double low, double high) {
    if (step == 0) return start > low && start < high;
    const double a = (low - start) / step, b = (high - start) / step;
    from = std::max(from, std::min(a, b));
    to = std::min(to, std::max(a, b));
    return from < to;
  };
  return clip(s.x0, s.x1 - s.x0, box.left, box.right) && clip(s.y0, s.y1 - s.y0, box.top, box.bottom);
}

PlacedBox box_around(double x, double y, double radius) { return {x - radius, y - radius, x + radius, y + radius}; }

class NamePlacer {
 public:
  NamePlacer(const PlacedBox& frame, std::span<const NamedPoint> points, double radius,
             std::span<const PlacedSegment> lines)
      : frame_(frame), radius_(radius), lines_(lines) {
    for (const NamedPoint& p : points) marks_.push_back(box_around(p.x, p.y, radius + 1));
  }

  std::optional<PlacedName> place(const NamedPoint& point, size_t own) {
    std::optional<PlacedName> best;
    double best_cost = INFINITY;
    for (const double distance : kDistances) {
      if (distance >= best_cost) break;  // no farther place is cheaper
      for (int i = 0; i < kDirections; ++i) {
        const PlacedName name = candidate(point, distance, i);
        if (!is_free(name.box)) continue;
        const double cost = distance + direction_cost(i) + cost_of(name, own);
        if (cost < best_cost) best_cost = cost, best = name;
      }
    }
    if (best) taken_.push_back(best->box);
    if (best && best->leader) leaders_.push_back(*best->leader);
    return best;
  }

 private:
  // Right first, then above and below, then left.
  static double direction_cost(int direction) {
    return 2.0 * std::min(direction, kDirections - direction) / kDirections;
  }

  PlacedName candidate(const NamedPoint& point, double distance, int direction) const {
    const double angle = 2 * std::numbers::pi * direction / kDirections;
    const double dx = std::cos(angle), dy = -std::sin(angle), reach = radius_ + kGap + distance;
    // The box touches the circle of `reach` from outside in this direction.
    const double x = point.x + dx * (reach + point.width / 2), y = point.y + dy * (reach + point.height / 2);
    const PlacedBox box{x - point.width / 2, y - point.height / 2, x + point.width / 2, y + point.height / 2};
    PlacedName out{box, {}};
    if (distance < kLeaderFrom) return out;
    const double end_x = std::clamp(point.x, box.left, box.right), end_y = std::clamp(point.y, box.top, box.bottom);
    const double length = std::hypot(end_x - point.x, end_y - point.y), start = (radius_ + 1) / length;
    out.leader = PlacedSegment{point.x + (end_x - point.x) * start, point.y + (end_y - point.y) * start, end_x, end_y};
    return out;
  }

  bool is_free(const PlacedBox& box) const {
    const auto meets = [&](const PlacedBox& other) { return other.overlaps(box); };
    return frame_.contains(box) && std::ranges::none_of(taken_, meets) && std::ranges::none_of(marks_, meets);
  }

  double cost_of(const PlacedName& name, size_t own) const {
    double cost = 0;
    for (const PlacedSegment& line : lines_) cost += crosses(line, name.box) ? kCrossedLine : 0;
    for (const PlacedSegment& leader : leaders_) cost += crosses(leader, name.box) ? kCrossedLeader : 0;
    if (!name.leader) return cost;
    for (const PlacedBox& box : taken_) cost += crosses(*name.leader, box) ? kCrossedLeader : 0;
    for (size_t i = 0; i < marks_.size(); ++i)
      cost += i != own && crosses(*name.leader, marks_[i]) ? kCrossedLeader : 0;
    return cost;
  }

  PlacedBox frame_;
  double radius_;
  std::span<const PlacedSegment> lines_;
  std::vector<PlacedBox> marks_, taken_;
  std::vector<PlacedSegment> leaders_;
};

}  // namespace

std::vector<std::optional<PlacedName>> place_names(const PlacedBox& frame, std::span<const NamedPoint> points,
                                                   double radius, std::span<const PlacedSegment> lines) {
  NamePlacer placer(frame, points, radius, lines);
  std::vector<std::optional<PlacedName>> out;
  for (size_t i = 0; i < points.size(); ++i) out.push_back(placer.place(points[i], i));
  return out;
}

std::vector<double> spread_rows(std::span<const double> centres, double height, double top, double bottom) {
  if (centres.empty()) return {};
  const auto n = static_cast<double>(centres.size());
  height = std::min(height, (bottom - top) / n);
  std::vector<size_t> order(centres.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return centres[i]; });
  std::vector<double> out(centres.begin(), centres.end());
  double free = top + height / 2;
  for (const size_t i : order) free = (out[i] = std::max(out[i], free)) + height;
  double limit = bottom - height / 2;
  for (size_t at = order.size(); at-- > 0;) {
    double& centre = out[order[at]];
    centre = std::min(centre, limit);
    limit = centre - height;
  }
  return out;
}

}  // namespace millrace
