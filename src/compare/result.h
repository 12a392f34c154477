// Results of a comparison, and their output as JSON or as a table.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "compare/speed.h"
#include "compare/suite_run.h"

namespace millrace {

struct ConfigResult {
  std::string name, spec;
  nlohmann::ordered_json applied = nlohmann::ordered_json::array();
  std::vector<SuiteFigure> quality;           // figures of all suites; equally many in every configuration
  std::vector<double> prefill, decode, ttft;  // one value for each round: tokens/s, tokens/s, milliseconds
  ConfigMemory memory;                        // 0: not known
  double roof_tokens_per_s = 0;               // upper bound of the decoding speed; 0: not measured
};

struct CompareResult {
  std::string model, machine, version;
  int64_t rounds = 0;
  double read_gb_per_s = 0;           // bandwidth from which the bound is computed; 0: not measured
  std::vector<std::string> notes;     // missing figures, with the reasons
  std::vector<ConfigResult> configs;  // the first one is the base
};

// Returns the JSON that docs/compare.md describes.
nlohmann::ordered_json compare_json(const CompareResult& result);

// Returns a Markdown table with one row for each configuration. `columns`: width of the terminal; 0: no limit. A
// narrower terminal loses, in this order: peak memory, prefill, time to the first token, further figures from the last
// one on, weights, KV, decode speed.
std::string compare_table(const CompareResult& result, size_t columns = 0);

// Returns the name of a figure in tables and pictures: "SUITE METRIC".
std::string figure_name(const SuiteFigure& figure);

// Returns the figure that pictures and the Pareto front use: the first one over all items that has values; null: none.
const SuiteFigure* main_figure(const ConfigResult& config);

// Returns the Pareto front of the configurations by three figures: the main figure, the median decode speed, and the
// bytes of weights, keys and values. A configuration is in the front if no other one is at least equal in all three and
// better in one. Configurations that lack a figure that others have are not considered.
std::vector<bool> pareto_front(const CompareResult& result);

// Returns the bytes of weights and of one stream's keys and values; 0: not known.
int64_t stored_bytes_of(const ConfigResult& config);

// Returns an explanation of the intervals in brackets.
std::string brackets_text(const CompareResult& result);

// Returns true if a figure cannot show its configuration's loss. Such figures are marked "unseen", which kUnseenLegend
// explains.
bool any_unseen(const CompareResult& result);
inline constexpr const char* kUnseenLegend =
    "unseen: the suite cannot see a technique of the configuration, so the figure does not say what it costs; such a "
    "configuration is not on the front.";

// Returns "12.3 [11.9, 12.8]", with the number of digits that the interval supports; "" without values.
std::string interval_text(const Interval& interval);
std::string median_text(const std::vector<double>& rounds);
// Compares a figure with the base by the 95 % interval of the paired difference. Returns 1: better, -1: worse, 0:
// neither, or too few rounds.
int against_base(const SuiteFigure& figure);

}  // namespace millrace
