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

  // fraction in [0, 1]; `note` is shown after the bar ("PPL 12.3").
  void update(double fraction, const std::string& note = "");

 private:
  std::string label_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace millrace
