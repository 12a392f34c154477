// Writes the report of a replay as a single HTML file, with its figures and charts over time. The file loads no other
// resources and contains no scripts.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "picture/chart.h"
#include "workload/metrics.h"

namespace millrace {

struct ReportFacts {
  std::string title;                                          // "conversation_trace.jsonl.xz on q4_0.gguf"
  std::vector<std::pair<std::string, std::string>> settings;  // name, value
};

// The panels of the report as one chart.
Chart replay_chart(const ReportFacts& facts, std::span<const RequestRecord> records, const LoadMetrics& metrics);

// Errors: unsupported (pictures cannot be drawn on this machine).
Result<std::string> replay_report_html(const ReportFacts& facts, std::span<const RequestRecord> records,
                                       const LoadMetrics& metrics,
                                       // metrics of a simulation of the run, shown next to the figures
                                       const LoadMetrics* predicted = nullptr);

}  // namespace millrace
