#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace millrace {
namespace {
constexpr size_t kWidth = 30, kMinWidth = 5;  // cells of the bar
constexpr auto kInterval = std::chrono::milliseconds(80);
constexpr auto kShortTask = std::chrono::milliseconds(200);  // no bar for shorter tasks

// Width of the terminal on standard error; 0: not known.
size_t columns_of_errors() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string time_left(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  if (seconds < 2 * kMinute) return fmt::format("{:.0f} s", seconds);
  return seconds < 2 * kHour ? fmt::format("{:.0f} min", seconds / kMinute) : fmt::format("{:.1f} h", seconds / kHour);
}
}  // namespace

std::string progress_line(const std::string& label, double fraction, double first, double seconds,
                          const std::string& note, size_t columns) {
  constexpr double kKnown = 0.01;  // of the work, from which the time left is told
  fraction = std::clamp(fraction, 0.0, 1.0);
  std::string texts = fmt::format(" {:3.0f} %", fraction * 100);
  if (fraction - first > kKnown)
    texts += fmt::format("  {} to go", time_left(seconds / (fraction - first) * (1 - fraction)));
  if (!note.empty()) texts += "  " + note;
  const size_t others = label.size() + texts.size() + 6;  // " []", the cursor, and the "^C" of Ctrl-C
  size_t cells = kWidth;
  if (columns > 0) cells = others < columns ? std::min(kWidth, columns - others) : 0;
  if (cells < kMinWidth) return label + texts;
  const auto full = static_cast<size_t>(fraction * static_cast<double>(cells));
  return fmt::format("{} [{}{}]{}", label, std::string(full, '#'), std::string(cells - full, '.'), texts);
}

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
  const double elapsed = std::chrono::duration<double>(now - started_).count();
  const std::string line = "\r" + progress_line(label_, fraction, first_, elapsed, note, columns_of_errors());
  std::fputs((line + "\x1b[K").c_str(), stderr);
  drawn_ = true;
}

}  // namespace millrace
