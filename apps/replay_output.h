// The output of `millrace replay`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/result.h"
#include "terminal/text_table.h"
#include "workload/metrics.h"
#include "workload/report.h"

namespace millrace {

// The columns that a narrow terminal drops, for the help.
std::string replay_drop_order();

// `room`: for the tables.
void print_replay_text(const LoadMetrics& metrics, const GoodputLimits& limits, const LoadMetrics* predicted,
                       const TableRoom& room);
// The figures of `vllm bench serve` under the same names, after `facts`, and "predicted" if there is a prediction.
nlohmann::ordered_json replay_json(nlohmann::ordered_json facts, const LoadMetrics& metrics,
                                   const GoodputLimits& limits, const LoadMetrics* predicted);
// Errors: user (the file), unsupported (pictures cannot be drawn on this machine).
Result<void> write_replay_report(const std::string& path, const ReportFacts& facts,
                                 std::span<const RequestRecord> records, const LoadMetrics& metrics,
                                 const LoadMetrics* predicted);

}  // namespace millrace
