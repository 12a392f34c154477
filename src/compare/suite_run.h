// Runs a suite over all configurations. Timed configurations take turns (A B A B), values of an earlier run are not
// measured again, and an interrupted run returns partial figures.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compare/bootstrap.h"
#include "compare/journal.h"
#include "compare/suite.h"

namespace millrace {

struct SuiteValues {
  SuitePlan plan;
  std::vector<std::vector<std::optional<std::vector<double>>>> values;  // [configs, items], of the plan's metrics
  std::vector<std::string> left_out;                                    // [configs]: why; "": it has values
  std::vector<std::string> unseen;                                      // [configs]: as SuiteRun::unseen()
  bool complete = true;                                                 // false: interrupted

  // A metric's values of one configuration, of the items of a group (null: all) that every configuration which takes
  // the metric has measured.
  std::vector<double> of(size_t config, size_t metric, const std::string* group = nullptr) const;

 private:
  bool has(size_t config, size_t item, size_t metric) const;
  bool takes(size_t config, size_t metric) const;  // has a value of any item
};

// `progress` receives the fraction done and returns false to stop, which is not an error. Only another engine's
// configuration may be left out. Errors: those of the suite, with the configuration's text; of the journal.
Result<SuiteValues> run_suite(SuiteRun& run, std::span<const CompareConfig> configs, CompareJournal& journal,
                              const std::function<bool(double)>& progress);

struct SuiteFigure {
  std::string suite, metric;  // metric may belong to a group: "accuracy@512"
  bool more_is_better = true;
  bool of_group = false;
  bool has_intervals = true;  // false: a median of too few rounds, with the lowest and highest (kMinForMedian)
  int64_t items = 0;
  Interval interval;    // the average; items and interval are 0 if there is none
  Interval difference;  // from the base, of the same items; of the logarithms for an exponential average
  std::string unseen;   // reason why it cannot show the configuration's loss (SuiteRun::unseen()); "": it can
  Interval paired;  // the average within the difference's interval: narrower than `interval`, and for comparing only
};

// [configs, figures]: the metrics over all items, if they mean something, then those of each group. The first
// configuration is the base.
std::vector<std::vector<SuiteFigure>> suite_figures(const SuiteValues& values);

}  // namespace millrace
