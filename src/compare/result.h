// What a comparison found, and its forms: JSON for programs, a table for people.
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
  std::vector<SuiteFigure> quality;           // the same figures in every configuration
  std::vector<double> prefill, decode, ttft;  // of each round: tokens/s, tokens/s, milliseconds
  ConfigMemory memory;                        // zero where it is not known
  double roof_tokens_per_s = 0;               // of decoding; 0: not measured
};

struct CompareResult {
  std::string model, machine, version;
  int64_t rounds = 0;
  double read_gb_per_s = 0;           // the roof's bandwidth; 0: not measured
  std::vector<std::string> notes;     // what is missing, and why
  std::vector<ConfigResult> configs;  // the base first
};

// The form that docs/compare.md describes.
nlohmann::ordered_json compare_json(const CompareResult& result);

// Markdown: a row per configuration.
std::string compare_table(const CompareResult& result);

// The figure that pictures and the front are made of: the first one over all items that has values; null: none.
const SuiteFigure* main_figure(const ConfigResult& config);

// Of the configurations with all that is measured: those that no other one equals or beats in the main figure, the
// median decode speed and the bytes of weights and keys and values, and beats in one of them (Pareto front).
std::vector<bool> pareto_front(const CompareResult& result);

// Bytes of weights and of one stream's keys and values; 0: not known.
int64_t stored_bytes_of(const ConfigResult& config);

// What the brackets of this result are.
std::string brackets_text(const CompareResult& result);

// Whether a figure cannot show what its configuration loses, and what "unseen" beside a figure says.
bool any_unseen(const CompareResult& result);
inline constexpr const char* kUnseenLegend =
    "unseen: the suite cannot see a technique of the configuration, so the figure does not say what it costs; such a "
    "configuration is not on the front.";

// "12.3 [11.9, 12.8]", with as many digits as the interval supports; "" without values.
std::string interval_text(const Interval& interval);
std::string median_text(const std::vector<double>& rounds);
// Whether the paired difference from the base is above or below 0 in 95 %: 1 better, -1 worse, 0 neither, or too few
// rounds to say.
int against_base(const SuiteFigure& figure);

}  // namespace millrace
