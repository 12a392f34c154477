// A comparison from its configurations to its result: the suites, the timed rounds and the memory of each. Used by
// `millrace compare` and by the server's POST /compare.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compare/config.h"
#include "compare/journal.h"
#include "compare/result.h"
#include "compare/suite.h"

namespace millrace {

struct ComparisonPlan {
  std::vector<std::string> suites;  // NAME or NAME:argument
  SuiteInput input;                 // input.rounds 0: no speed
  std::string machine;              // in the result
  std::string model_path;           // file of the base's model, which another engine runs too
  bool resumable = false;           // the journal is a file: a stopped comparison says that the same command continues
};

// Receives the part that runs ("1/2 lab:copy") and its finished fraction. Returns false to stop the comparison.
using ComparisonProgress = std::function<bool(const std::string& part, double fraction)>;

struct Comparison {
  CompareResult result;
  bool complete = true;  // false: stopped; the figures cover only items that every configuration had measured
};

// Parses configurations, the base first. Errors: user (those of parse_compare_spec(), a repeated configuration, another
// engine as base).
Result<std::vector<CompareSpec>> parse_configurations(std::span<const std::string> texts);

// Runs the plan. `configs`: the base first. Errors: those of the suites and of the journal.
Result<Comparison> run_comparison(const ComparisonPlan& plan, std::span<const CompareConfig> configs,
                                  CompareJournal& journal, const ComparisonProgress& progress);

}  // namespace millrace
