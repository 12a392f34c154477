// A replay as a single HTML file: its figures, and charts of their course over time. It loads nothing from elsewhere
// and contains no scripts.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workload/metrics.h"

namespace millrace {

struct ReportFacts {
  std::string title;                                          // "conversation_trace.jsonl.xz on q4_0.gguf"
  std::vector<std::pair<std::string, std::string>> settings;  // name, value
};

std::string replay_report_html(const ReportFacts& facts, std::span<const RequestRecord> records,
                               const LoadMetrics& metrics,
                               // metrics of a simulation of the run, shown next to the figures
                               const LoadMetrics* predicted = nullptr);

}  // namespace millrace
