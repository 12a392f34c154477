#include "compare/suite_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

struct Turn {
  size_t config = 0;
  std::vector<size_t> items;  // that have no value yet
};

// The order of measuring: so many items of each configuration in turn.
std::vector<Turn> turns_of(const SuiteValues& values) {
  std::vector<Turn> out;
  const auto items = values.plan.items.size(), step = static_cast<size_t>(std::max<int64_t>(1, values.plan.at_once));
  for (size_t begin = 0; begin < items; begin += step)
    for (size_t config = 0; config < values.values.size(); ++config) {
      Turn turn{config, {}};
      for (size_t item = begin; item < std::min(items, begin + step); ++item)
        if (!values.values[config][item]) turn.items.push_back(item);
      if (!turn.items.empty()) out.push_back(std::move(turn));
    }
  return out;
}

Interval average_of(SuiteAverage average, const std::vector<double>& values) {
  if (average == SuiteAverage::median) return bootstrap_median(values);
  const Interval mean = bootstrap_mean(values);
  if (average == SuiteAverage::mean) return mean;
  return {std::exp(mean.value), std::exp(mean.low), std::exp(mean.high)};
}

SuiteFigure figure_of(const SuiteValues& values, size_t config, size_t metric, const std::string* group) {
  const SuiteMetric& of = values.plan.metrics[metric];
  SuiteFigure out{.suite = values.plan.name, .metric = of.name, .more_is_better = of.more_is_better};
  if (group) {
    out.metric += "@" + *group;
    out.of_group = true;
  }
  const std::vector<double> own = values.of(config, metric, group);
  if (own.empty()) return out;
  out.items = std::ssize(own);
  out.interval = average_of(of.average, own);
  out.has_intervals = of.average != SuiteAverage::median || own.size() >= kMinForMedian;
  out.paired = out.interval;
  const std::vector<double> base = values.of(0, metric, group);
  if (base.size() != own.size()) return out;
  out.difference =
      of.average == SuiteAverage::median ? bootstrap_median_difference(own, base) : bootstrap_difference(own, base);
  const double least = out.difference.low - out.difference.value, most = out.difference.high - out.difference.value;
  const double value = out.interval.value;
  if (of.average == SuiteAverage::mean) out.paired = {value, value + least, value + most};
  if (of.average == SuiteAverage::exponential) out.paired = {value, value * std::exp(least), value * std::exp(most)};
  return out;
}

}  // namespace

bool SuiteValues::has(size_t config, size_t item, size_t metric) const {
  const auto& value = values[config][item];
  return value && metric < value->size() && std::isfinite((*value)[metric]);
}

bool SuiteValues::takes(size_t config, size_t metric) const {
  for (size_t item = 0; item < plan.items.size(); ++item)
    if (has(config, item, metric)) return true;
  return false;
}

std::vector<double> SuiteValues::of(size_t config, size_t metric, const std::string* group) const {
  std::vector<size_t> others;
  for (size_t other = 0; other < values.size(); ++other)
    if (takes(other, metric)) others.push_back(other);
  std::vector<double> out;
  if (std::ranges::find(others, config) == others.end()) return out;
  for (size_t item = 0; item < plan.items.size(); ++item)
    if ((!group || plan.items[item] == *group) &&
        std::ranges::all_of(others, [&](size_t other) { return has(other, item, metric); }))
      out.push_back((*values[config][item])[metric]);
  return out;
}

Result<SuiteValues> run_suite(SuiteRun& run, std::span<const CompareConfig> configs, CompareJournal& journal,
                              const std::function<bool(double)>& progress) {
  SuiteValues out{.plan = run.plan(), .unseen = run.unseen()};
  out.values.assign(configs.size(), std::vector<std::optional<std::vector<double>>>(out.plan.items.size()));
  out.left_out.resize(configs.size());
  const auto key = [&](size_t config, size_t item) {
    return JournalKey{out.plan.name, out.plan.identity, configs[config].spec.text, static_cast<int64_t>(item)};
  };
  for (size_t config = 0; config < configs.size(); ++config)
    for (size_t item = 0; item < out.plan.items.size(); ++item)
      if (const auto* known = journal.find(key(config, item))) out.values[config][item] = *known;
  const std::vector<Turn> turns = turns_of(out);
  for (size_t i = 0; i < turns.size(); ++i) {
    const auto& [config, items] = turns[i];
    const auto wanted = [&] { return progress(static_cast<double>(i) / static_cast<double>(turns.size())); };
    if (!out.left_out[config].empty()) continue;
    auto measured = wanted() ? run.measure(config, items, wanted) : Error::cancelled("interrupted");
    if (!measured.ok()) {
      const Error& error = measured.error();
      if (error.kind == ErrorKind::cancelled) {
        out.complete = false;
        return out;
      }
      if (error.kind != ErrorKind::unsupported || !configs[config].external)
        return Error{error.kind, fmt::format("{}: {}: {}", configs[config].spec.text, out.plan.name, error.message)};
      out.left_out[config] = error.message;
      continue;
    }
    for (size_t n = 0; n < items.size(); ++n) {
      MILLRACE_TRY_VOID(journal.add(key(config, items[n]), (*measured)[n]));
      out.values[config][items[n]] = std::move((*measured)[n]);
    }
  }
  return out;
}

std::vector<std::vector<SuiteFigure>> suite_figures(const SuiteValues& values) {
  std::vector<std::string> groups;
  for (const std::string& group : values.plan.items)
    if (!group.empty() && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  if (groups.size() == 1 && values.plan.overall) groups.clear();
  std::vector<std::vector<SuiteFigure>> out(values.values.size());
  for (size_t config = 0; config < values.values.size(); ++config) {
    for (size_t metric = 0; metric < values.plan.metrics.size() && values.plan.overall; ++metric)
      out[config].push_back(figure_of(values, config, metric, nullptr));
    for (const std::string& group : groups)
      for (size_t metric = 0; metric < values.plan.metrics.size(); ++metric) {
        out[config].push_back(figure_of(values, config, metric, &group));
        out[config].back().of_group = values.plan.overall || &group != &groups.back();
      }
    if (config < values.unseen.size())
      for (SuiteFigure& figure : out[config]) figure.unseen = values.unseen[config];
  }
  return out;
}

}  // namespace millrace
