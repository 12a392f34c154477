// Results of a comparison, and their forms: JSON for programs, a table for people.
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
  std::vector<SuiteFigure> quality;           // every configuration has the same ones
  std::vector<double> prefill, decode, ttft;  // figures of each round: tokens/s, tokens/s, milliseconds
  ConfigMemory memory;                        // zero where it is not known
  double roof_tokens_per_s = 0;               // bound of decoding; 0: not measured
};

struct CompareResult {
  std::string model, machine, version;
  int64_t rounds = 0;
  double read_gb_per_s = 0;           // the roof's bandwidth; 0: not measured
  std::vector<std::string> notes;     // figures that are missing, and why
  std::vector<ConfigResult> configs;  // the base first
};

// The form that docs/compare.md describes.
nlohmann::ordered_json compare_json(const CompareResult& result);

// Markdown: a row per configuration.
std::string compare_table(const CompareResult& result);

// The figure that pictures and the front are made of: the first one over all items that has values; null: none.
const SuiteFigure* main_figure(const ConfigResult& config);

// Returns the Pareto front of the configurations with all measurements, by three figures: the main figure, the median
// decode speed, and the bytes of weights, keys and values. No other configuration equals or beats a member in all three
// and beats it in one.
std::vector<bool> pareto_front(const CompareResult& result);

// Bytes of weights and of one stream's keys and values; 0: not known.
int64_t stored_bytes_of(const ConfigResult& config);

// Explains the brackets of this result.
std::string brackets_text(const CompareResult& result);

// Returns true if some figure cannot show what its configuration loses; and explains "unseen" next to a figure.
bool any_unseen(const CompareResult& result);
inline constexpr const char* kUnseenLegend =
    "unseen: the suite cannot see a technique of the configuration, so the figure does not say what it costs; such a "
    "configuration is not on the front.";

// "12.3 [11.9, 12.8]", with as many digits as the interval supports; "" without values.
std::string interval_text(const Interval& interval);
std::string median_text(const std::vector<double>& rounds);
// Says whether the paired difference from the base is above or below 0 in 95 %: 1 better, -1 worse, 0 neither, or too
// few rounds to say.
int against_base(const SuiteFigure& figure);

}  // namespace millrace
