// A replay as one HTML file: its figures, and how they went over time, as drawings. Nothing is loaded from elsewhere
// and nothing runs in it.
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
                               const LoadMetrics* predicted = nullptr);  // of the same run, beside what was measured

}  // namespace millrace
