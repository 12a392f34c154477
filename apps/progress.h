// A progress bar on stderr; does nothing if stderr is not a terminal.
#pragma once

#include <chrono>
#include <string>

namespace millrace {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();  // erases the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `fraction`: what was done before this run, as of a download that continues. Call it before update().
  void begin_at(double fraction) { first_ = fraction; }

  // fraction in [0, 1]; `note` is shown after the bar ("PPL 12.3").
  void update(double fraction, const std::string& note = "");

 private:
  std::string label_;
  bool terminal_;
  bool drawn_ = false;
  double first_ = 0;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point last_;
};

// Returns the bar and its texts: "LABEL [###...]  34 %  9 s to go  NOTE", in at most `columns` columns if the texts
// leave room for a bar. `first`: as of begin_at(). `columns`: 0: not known.
std::string progress_line(const std::string& label, double fraction, double first, double seconds,
                          const std::string& note, size_t columns);

}  // namespace millrace
