// Runs a suite over all configurations. Timed configurations take turns (A B A B). Values of an earlier run are not
// measured again. An interrupted run returns partial figures.
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
  // [configs, items], each with the values of the plan's metrics.
  std::vector<std::vector<std::optional<std::vector<double>>>> values;
  std::vector<std::string> left_out;  // [configs]: reason why a configuration has no values; "": it has values
  std::vector<std::string> unseen;    // see SuiteRun::unseen()
  bool complete = true;               // false: interrupted

  // Returns one configuration's values of a metric. Includes the items of `group` (null: all items) for which every
  // configuration that has the metric has a value.
  std::vector<double> of(size_t config, size_t metric, const std::string* group = nullptr) const;

 private:
  bool has(size_t config, size_t item, size_t metric) const;
  bool takes(size_t config, size_t metric) const;  // true: has a value for at least one item
};

// `progress` receives the finished fraction and returns false to stop, which is not an error. Only configurations of
// another engine may be left out. Errors: those of the suite, with the configuration's text; those of the journal.
Result<SuiteValues> run_suite(SuiteRun& run, std::span<const CompareConfig> configs, CompareJournal& journal,
                              const std::function<bool(double)>& progress);

struct SuiteFigure {
  std::string suite, metric;  // a metric of one group has the group's name: "accuracy@512"
  bool more_is_better = true;
  bool of_group = false;
  // False: a median of too few rounds (kMinForMedian); `low` and `high` are then the minimum and maximum.
  bool has_intervals = true;
  int64_t items = 0;
  Interval interval;    // the average and its interval; `items` and `interval` are 0 if there are no values
  Interval difference;  // difference from the base over the same items; for an exponential average, of the logarithms
  std::string unseen;   // reason why it cannot show the configuration's loss (SuiteRun::unseen()); "": it can
  // The average with an interval computed from `difference`: narrower than `interval`, and only for comparisons.
  Interval paired;
};

// Returns the figures [configs, figures]: the metrics over all items (if SuitePlan::overall), then those of each group.
// The first configuration is the base.
std::vector<std::vector<SuiteFigure>> suite_figures(const SuiteValues& values);

}  // namespace millrace
