#include "train/loss_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <tuple>

#include "picture/pixel_canvas.h"

namespace millrace {
namespace {

constexpr int kWidth = 960, kHeight = 540, kLeft = 80, kRight = 30, kTop = 50, kBottom = 70;
constexpr Colour kPaper{255, 255, 255}, kInk{40, 40, 40}, kGrid{225, 225, 225}, kTrain{44, 110, 190},
    kHeldOut{214, 90, 30};

struct Frame {
  double tokens = 1, low = 0, high = 1;  // of the data
  double x(double t) const { return kLeft + t / tokens * (kWidth - kLeft - kRight); }
  double y(double loss) const { return kTop + (high - loss) / (high - low) * (kHeight - kTop - kBottom); }
};

// A round step (1, 2 or 5 times a power of ten) that gives about six ticks.
double round_step(double span) {
  const double raw = span / 6, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

// The first steps fall from ln(vocabulary) and would flatten the rest: the scale excludes the highest twentieth of the
// points, and lines above it are clipped to the frame.
Frame frame_of(const std::vector<LossPoint>& points) {
  Frame frame;
  std::vector<double> losses;
  for (const LossPoint& p : points) {
    losses.push_back(p.train);
    losses.push_back(p.held_out);
    frame.tokens = std::max(frame.tokens, p.tokens);
  }
  std::sort(losses.begin(), losses.end());
  const double top = losses[losses.size() - 1 - losses.size() / 20];
  const double step = round_step(std::max(0.1, top - losses.front()));
  frame.low = std::floor(losses.front() / step) * step;
  frame.high = std::ceil((top + 0.01) / step) * step;
  return frame;
}

void draw_axes(PixelCanvas& canvas, const Frame& frame, const std::string& title) {
  const double step = round_step(frame.high - frame.low);
  for (double loss = frame.low; loss <= frame.high + step / 2; loss += step) {
    canvas.line(kLeft, frame.y(loss), kWidth - kRight, frame.y(loss), 1, kGrid);
    const std::string label = fmt::format("{:.1f}", loss);
    canvas.text(kLeft - 10 - PixelCanvas::text_width(label, 2), static_cast<int>(frame.y(loss)) - 7, label, 2, kInk);
  }
  const double stride = round_step(frame.tokens);
  for (double t = 0; t <= frame.tokens; t += stride) {
    canvas.line(frame.x(t), kTop, frame.x(t), kHeight - kBottom, 1, kGrid);
    const std::string label = fmt::format("{:.3g}", t / 1e6);
    canvas.text(static_cast<int>(frame.x(t)) - PixelCanvas::text_width(label, 2) / 2, kHeight - kBottom + 10, label, 2,
                kInk);
  }
  canvas.line(kLeft, kTop, kLeft, kHeight - kBottom, 2, kInk);
  canvas.line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, 2, kInk);
  const std::string below = "million tokens seen";
  canvas.text((kWidth + kLeft - kRight - PixelCanvas::text_width(below, 2)) / 2, kHeight - 28, below, 2, kInk);
  canvas.text(12, 16, title + ": loss, nats per token", 2, kInk);
}

}  // namespace

Result<std::vector<LossPoint>> read_loss_csv(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) return Error::user("cannot read the loss curve: " + path);
  std::vector<LossPoint> points;
  while (std::getline(in, line)) {
    double step = 0, epoch = 0;
    LossPoint p;
    if (std::sscanf(line.c_str(), "%lf,%lf,%lf,%lf,%lf", &step, &p.tokens, &epoch, &p.train, &p.held_out) != 5)
      return Error::corrupt("the loss curve has a line that is not a row of numbers: " + path + ": " + line);
    points.push_back(p);
  }
  return points;
}

Result<void> draw_loss_png(const std::vector<LossPoint>& points, const std::string& title, const std::string& path) {
  if (points.size() < 2) return Error::user("the loss curve needs at least two evaluations: " + path);
  const Frame frame = frame_of(points);
  PixelCanvas canvas(kWidth, kHeight, kPaper);
  draw_axes(canvas, frame, title);
  auto draw = [&](double LossPoint::*loss, Colour colour) {
    for (size_t i = 1; i < points.size(); ++i) {
      const double before = std::min(points[i - 1].*loss, frame.high), now = std::min(points[i].*loss, frame.high);
      canvas.line(frame.x(points[i - 1].tokens), frame.y(before), frame.x(points[i].tokens), frame.y(now), 2.5, colour);
    }
  };
  draw(&LossPoint::train, kTrain);
  draw(&LossPoint::held_out, kHeldOut);
  int row = kTop + 20;
  for (const auto& [label, colour, last] : {std::tuple{"training", kTrain, points.back().train},
                                            std::tuple{"held-out", kHeldOut, points.back().held_out}}) {
    canvas.line(kWidth - 300, row + 7, kWidth - 270, row + 7, 3, colour);
    canvas.text(kWidth - 260, row, fmt::format("{} {:.3f}", label, last), 2, kInk);
    row += 24;
  }
  return canvas.write_png(path);
}

}  // namespace millrace
