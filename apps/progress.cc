#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace millrace {
namespace {
constexpr int kWidth = 30;
constexpr auto kInterval = std::chrono::milliseconds(80);
constexpr auto kShortTask = std::chrono::milliseconds(200);  // no bar for shorter tasks
}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)),
      terminal_(isatty(STDERR_FILENO) == 1),
      started_(std::chrono::steady_clock::now()),
      last_(started_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(double fraction, const std::string& note) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - started_ < kShortTask || now - last_ < kInterval) return;
  last_ = now;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const int full = static_cast<int>(fraction * kWidth);
  const double elapsed = std::chrono::duration<double>(now - started_).count();
  std::string line = fmt::format("\r{} [{}{}] {:3.0f} %", label_, std::string(full, '#'),
                                 std::string(kWidth - full, '.'), fraction * 100);
  if (fraction > 0.01) line += fmt::format("  {:.0f} s to go", elapsed / fraction * (1 - fraction));
  if (!note.empty()) line += "  " + note;
  std::fputs((line + "\x1b[K").c_str(), stderr);
  drawn_ = true;
}

}  // namespace millrace
