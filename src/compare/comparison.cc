#include "compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "models/weight_source.h"
#include "run/language_model.h"

namespace millrace {
namespace {

// Adds a note for each drafter that chooses among others: its loss of tokens per step against the best single drafter,
// per task and on average.
void add_regret(std::span<const CompareConfig> configs, const std::vector<std::vector<SuiteFigure>>& figures,
                CompareResult& result) {
  for (size_t c = 0; c < configs.size(); ++c) {
    if (!configs[c].engine.drafter.starts_with("best")) continue;
    std::string tasks;
    double sum = 0;
    int count = 0;
    for (size_t f = 0; f < figures[c].size(); ++f) {
      const SuiteFigure& own = figures[c][f];
      if (!own.of_group || !own.metric.starts_with("tokens_per_step")) continue;
      double best = 0;
      for (size_t other = 0; other < configs.size(); ++other)
        if (other != c && !configs[other].engine.drafter.empty())
          best = std::max(best, figures[other][f].interval.value);
      if (best <= 0) continue;
      const double regret = 1 - own.interval.value / best;
      tasks += fmt::format("{}{} {:.1f} %", tasks.empty() ? "" : ", ", own.metric.substr(own.metric.find('@') + 1),
                           100 * regret);
      sum += regret;
      ++count;
    }
    if (count > 0)
      result.notes.push_back(
          fmt::format("{}: tokens a step below the best of the other drafters: {:.1f} % on average ({})",
                      configs[c].spec.name, 100 * sum / count, tasks));
  }
}

// Runs one suite, or the timed rounds, and adds its figures to the result. Returns false if it was stopped.
Result<bool> measure(SuiteRun& run, std::span<const CompareConfig> configs, CompareJournal& journal,
                     const std::string& part, const ComparisonProgress& progress, CompareResult& result) {
  MILLRACE_TRY(const SuiteValues values,
               run_suite(run, configs, journal, [&](double fraction) { return progress(part, fraction); }));
  for (size_t c = 0; c < configs.size(); ++c)
    if (!values.left_out[c].empty())
      result.notes.push_back(
          fmt::format("{}: {} is left out: {}", values.plan.name, configs[c].spec.name, values.left_out[c]));
  result.notes.insert(result.notes.end(), run.notes().begin(), run.notes().end());
  if (values.plan.name == "speed") {
    for (size_t c = 0; c < configs.size(); ++c) {
      result.configs[c].prefill = values.of(c, kPrefillMetric);
      result.configs[c].decode = values.of(c, kDecodeMetric);
      result.configs[c].ttft = values.of(c, kTtftMetric);
    }
  } else {
    const auto figures = suite_figures(values);
    add_regret(configs, figures, result);
    for (size_t c = 0; c < configs.size(); ++c)
      result.configs[c].quality.insert(result.configs[c].quality.end(), figures[c].begin(), figures[c].end());
  }
  return values.complete;
}

using ReadRates = std::map<int64_t, double>;  // GB/s, by bytes of a step

// Other load on the machine varies, so the rates are measured before and after the rounds, and the higher value counts.
void raise_read_rates(std::span<const CompareConfig> configs, const ComparisonProgress& progress, ReadRates& rates) {
  for (const CompareConfig& config : configs) {
    if (!config.model || !progress("read rate", 0)) continue;
    double& rate = rates[config.model->info().step_bytes];
    rate = std::max(rate, measure_read_rate(config));
  }
}

void add_roofs(const ComparisonPlan& plan, std::span<const CompareConfig> configs, const ReadRates& rates,
               CompareResult& result) {
  for (size_t c = 0; c < configs.size(); ++c) {
    if (!configs[c].model) continue;
    const auto rate = rates.find(configs[c].model->info().step_bytes);
    if (rate == rates.end()) continue;
    result.configs[c].roof_tokens_per_s =
        decode_roof_tokens_per_s(configs[c], plan.input.prompt + plan.input.generate, rate->second);
    result.read_gb_per_s = std::max(result.read_gb_per_s, rate->second);
  }
}

// If a configuration's memory cannot be measured, the result has a note; its other figures are complete by then.
void add_memory(const ComparisonPlan& plan, std::span<const CompareConfig> configs, CompareResult& result) {
  const int64_t longest = plan.input.prompt + plan.input.generate;
  for (size_t c = 0; c < configs.size(); ++c) {
    ConfigResult& own = result.configs[c];
    if (!configs[c].model) {
      std::error_code missing;
      const std::string& model = configs[c].spec.model;
      const auto bytes = std::filesystem::file_size(model.empty() ? plan.model_path : model, missing);
      if (!missing) own.memory.weights_bytes = static_cast<int64_t>(bytes);
      continue;
    }
    const int64_t fitting = std::min(longest, compare_context(configs[c]));
    auto memory = measure_memory(configs[c], std::min(plan.input.prompt, fitting - 1), fitting);
    if (memory.ok())
      own.memory = *memory;
    else
      result.notes.push_back(fmt::format("memory: {} is left out: {}", own.name, memory.error().message));
  }
}

CompareResult empty_result(const ComparisonPlan& plan, std::span<const CompareConfig> configs) {
  CompareResult result;
  result.model = configs.front().model->info().name;
  result.rounds = plan.input.rounds;
  result.machine = plan.machine;
  for (const CompareConfig& config : configs) {
    result.configs.push_back({.name = config.spec.name, .spec = config.spec.text, .applied = config.applied});
    const WeightSource* const source = config.model ? config.model->parts().model->source() : nullptr;
    if (source && !source->policy().lossy.empty())
      result.notes.push_back(fmt::format("{}: weights: {}", config.spec.name, source->policy().text));
  }
  return result;
}

Result<std::vector<std::unique_ptr<SuiteRun>>> begin_runs(const ComparisonPlan& plan,
                                                          std::span<const CompareConfig> configs) {
  std::vector<std::unique_ptr<SuiteRun>> runs;
  for (const std::string& suite : plan.suites) {
    MILLRACE_TRY(auto run, begin_suite(suite, configs, plan.input));
    runs.push_back(std::move(run));
  }
  if (plan.input.rounds > 0) {
    MILLRACE_TRY(auto run, begin_speed(configs, plan.input));
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace

Result<std::vector<CompareSpec>> parse_configurations(std::span<const std::string> texts) {
  std::vector<CompareSpec> specs;
  for (const std::string& text : texts) {
    auto spec = parse_compare_spec(text);
    if (!spec.ok()) return Error{spec.error().kind, "configuration " + spec.error().message};
    for (const CompareSpec& other : specs)
      if (other.text == spec->text) return Error::user(fmt::format("configuration '{}' is given twice", spec->text));
    specs.push_back(std::move(*spec));
  }
  if (!specs.front().engine.empty())
    return Error::user("the base must be a configuration of millrace, with which another engine can be compared");
  return specs;
}

Result<Comparison> run_comparison(const ComparisonPlan& plan, std::span<const CompareConfig> configs,
                                  CompareJournal& journal, const ComparisonProgress& progress) {
  MILLRACE_TRY(auto runs, begin_runs(plan, configs));
  Comparison out{.result = empty_result(plan, configs)};
  ReadRates rates;
  for (size_t i = 0; i < runs.size() && out.complete; ++i) {
    const bool speed = runs[i]->plan().name == "speed";
    const std::string part = fmt::format("{}/{} {}", i + 1, runs.size(), runs[i]->plan().name);
    if (speed) raise_read_rates(configs, progress, rates);
    MILLRACE_TRY(out.complete, measure(*runs[i], configs, journal, part, progress, out.result));
    if (speed) raise_read_rates(configs, progress, rates);
    runs[i].reset();  // its engines
  }
  if (!out.complete)
    out.result.notes.push_back("Interrupted: the figures cover only items that every configuration had measured." +
                               std::string(plan.resumable ? " The same command continues." : ""));
  add_roofs(plan, configs, rates, out.result);
  add_memory(plan, configs, out.result);
  return out;
}

}  // namespace millrace
