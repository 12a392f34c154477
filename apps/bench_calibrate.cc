#include "bench_calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/cpu.h"
#include "base/enum_table.h"
#include "base/json_text.h"
#include "base/ordered_json.h"
#include "base/philox.h"
#include "bench_shapes.h"
#include "input.h"
#include "interrupt.h"
#include "progress.h"
#include "workload/summary.h"

namespace millrace {
namespace {

constexpr size_t kHeldOut = 20, kRandom = 40;
constexpr int64_t kMinRounds = 2, kMaxRounds = 25;
// Seconds; a shorter step runs once untimed first, because steps of an engine follow each other.
constexpr double kShort = 0.02;
constexpr double kShapesShare = 0.25;  // of the time for steps, in addition: for the ways of products

// The random numbers of one step, in order.
class Draw {
 public:
  Draw(uint64_t seed, uint64_t step) : seed_(seed), step_(step) {}
  double uniform() { return philox_uniform(seed_, step_, next_++); }
  int64_t up_to(int64_t most) { return most < 1 ? 0 : static_cast<int64_t>(uniform() * static_cast<double>(most + 1)); }
  // In [1, most], log-uniform.
  int64_t logarithmic(int64_t most) {
    return std::clamp<int64_t>(std::llround(std::exp(uniform() * std::log(static_cast<double>(most) + 0.5))), 1, most);
  }

 private:
  uint64_t seed_, step_, next_ = 0;
};

void add_decodes(StepDesign& design, int64_t streams, const std::function<int64_t()>& depth) {
  for (int64_t i = 0; i < streams; ++i) design.push_back({design.size(), std::max<int64_t>(1, depth()), 1, true});
}
void add_prompt(StepDesign& design, int64_t first, int64_t count, bool sample) {
  design.push_back({design.size(), first, count, sample});
}

// The grid of the plan: prefills of every power of two of tokens, and decodes of every power of two of streams at
// several depths.
std::vector<TimedStep> grid_steps(const CalibrationPlan& plan) {
  std::vector<TimedStep> steps;
  for (int64_t tokens = 1;; tokens = std::min(2 * tokens, plan.batch_tokens)) {
    StepDesign alone, after_context;
    add_prompt(alone, 0, tokens, tokens % 3 != 0);
    add_prompt(after_context, plan.depth, tokens, true);
    steps.push_back({StepKind::prefill, alone, {}});
    if (plan.depth > 0) steps.push_back({StepKind::prefill, after_context, {}});
    if (tokens == plan.batch_tokens) break;
  }
  for (int64_t streams = 1;; streams = std::min(2 * streams, plan.streams)) {
    for (int64_t depth : {int64_t{1}, plan.depth / 4, plan.depth}) {
      StepDesign design;
      add_decodes(design, streams, [&] { return depth; });
      steps.push_back({StepKind::decode, design, {}});
    }
    if (streams == plan.streams) break;
  }
  return steps;
}

TimedStep draw_step(const CalibrationPlan& plan, Draw draw) {
  TimedStep step;
  step.kind = kAllOf<StepKind>[static_cast<size_t>(draw.up_to(kEnumerators<StepKind> - 1))];
  const auto depth = [&] { return draw.up_to(plan.depth); };
  int64_t decodes = step.kind == StepKind::decode ? draw.logarithmic(std::min(plan.streams, plan.batch_tokens)) : 0;
  if (step.kind == StepKind::mixed)
    decodes = draw.logarithmic(std::max<int64_t>(1, std::min(plan.streams, plan.batch_tokens) - 1));
  add_decodes(step.design, decodes, depth);
  if (step.kind == StepKind::decode) return step;
  int64_t left = plan.batch_tokens - decodes;
  const int64_t prompts = std::min(1 + draw.up_to(2), plan.streams - decodes);
  for (int64_t i = 0; i < prompts && left > 0; ++i) {
    const int64_t count = draw.logarithmic(left);
    add_prompt(step.design, draw.uniform() < 0.5 ? 0 : depth(), count, draw.uniform() < 0.7);
    left -= count;
  }
  return step;
}

class Calibrator {
 public:
  Calibrator(StepTimer& timer, const CalibrationPlan& plan, const std::function<bool(double)>& passed)
      : timer_(timer), plan_(plan), passed_(passed) {}

  // Every round measures every step once, including the held-out ones, so that temporary slowdowns of the machine
  // affect all steps alike.
  Result<void> run(Calibration& out) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<TimedStep*> all;
    for (TimedStep& step : out.fitted) all.push_back(&step);
    for (TimedStep& step : out.held_out) all.push_back(&step);
    for (; out.rounds < kMaxRounds; ++out.rounds) {
      const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const double next =
          out.rounds ? spent * static_cast<double>(out.rounds + 1) / static_cast<double>(out.rounds) : 0;
      if (out.rounds >= kMinRounds && next > plan_.seconds) break;
      const double rounds = std::max(static_cast<double>(kMinRounds),
                                     out.rounds ? plan_.seconds / (spent / static_cast<double>(out.rounds)) : 1e9);
      for (size_t i = 0; i < all.size(); ++i) {
        TimedStep& step = *all[(i * 37 + static_cast<size_t>(out.rounds) * 11) % all.size()];
        if (step.samples.empty() || step.samples.back() < kShort) MILLRACE_TRY_VOID(timer_.run(step.design));
        MILLRACE_TRY(const double seconds, timer_.run(step.design));
        step.samples.push_back(seconds);
        const double done =
            (static_cast<double>(out.rounds) + static_cast<double>(i + 1) / static_cast<double>(all.size())) /
            std::min(rounds, static_cast<double>(kMaxRounds));
        if (!passed_(std::min(1.0, done))) return Error::cancelled("calibration: interrupted");
      }
    }
    return {};
  }

 private:
  StepTimer& timer_;
  const CalibrationPlan& plan_;
  const std::function<bool(double)>& passed_;
};

int64_t kv_tokens(std::span<const TimedStep> steps) {
  int64_t most = 0;
  for (const TimedStep& step : steps) most = std::max(most, shape_of(step.design).keys);
  return most;
}

std::vector<MeasuredStep> measured(std::span<const TimedStep> steps) {
  std::vector<MeasuredStep> out;
  for (const TimedStep& step : steps) out.push_back(step.measured());
  return out;
}

// Includes outliers, such as steps that were descheduled: a queue behind them waits as well.
double slowdown_of(std::span<const TimedStep> steps) {
  double all = 0, typical = 0;
  for (const TimedStep& step : steps) all += step.mean(), typical += step.measured().seconds;
  return typical > 0 ? std::clamp(all / typical, 1.0, 100.0) : 1.0;
}

void print_shapes(const ShapeTable& shapes) {
  if (shapes.rows().empty()) return;
  fmt::print("\n| matrix | each token alone up to | tiles from |\n|---|---:|---:|\n");
  for (const ShapeTable::Row& row : shapes.rows())
    fmt::print("| {} {} x {} | {} | {} |\n", row.format->name, row.rows, row.cols, row.gemv_to,
               row.tiles_from == ShapeTable::kNever ? "never" : fmt::format("{} tokens", row.tiles_from));
}

void print_text(const Calibration& c, const Summary& errors, const ShapeTable& shapes, const std::string& path) {
  fmt::print(
      "| held-out step | tokens | chunks that sample | keys | measured ms | predicted ms | error "
      "|\n|---|---:|---:|---:|---:|---:|---:|\n");
  const auto cost = parse_cost_model(c.json, "fit");
  for (size_t i = 0; i < c.held_out.size(); ++i) {
    const MeasuredStep step = c.held_out[i].measured();
    fmt::print("| {} | {} | {} | {} | {:.2f} | {:.2f} | {:.1f} % |\n", step_kind_name(c.held_out[i].kind),
               step.shape.tokens, step.shape.outputs, step.shape.keys, step.seconds * 1e3,
               (*cost)->step_seconds(step.shape) / c.slowdown * 1e3, c.errors[i] * 100);
  }
  fmt::print(
      "\nerror over {} held-out steps: median {:.1f} %, p90 {:.1f} %, max {:.1f} %; {} steps fitted, each timed {} "
      "times; mean/median time {:.2f}; swap {:.2f} GB/s\n",
      c.held_out.size(), errors.p50 * 100, errors.p90 * 100, errors.max * 100, c.fitted.size(), c.rounds, c.slowdown,
      c.swap.bytes_per_second * 1e-9);
  if (c.disk.bytes_per_second > 0)
    fmt::print("disk {:.2f} GB/s plus {:.2f} ms per load\n", c.disk.bytes_per_second * 1e-9,
               c.disk.overhead_seconds * 1e3);
  print_shapes(shapes);
  if (!path.empty()) fmt::print("written to {}\n", path);
}

}  // namespace

const char* step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::prefill: return "prefill";
    case StepKind::decode: return "decode";
    case StepKind::mixed: return "mixed";
  }
  return "";
}

MeasuredStep TimedStep::measured() const {
  std::vector<double> sorted = samples;
  std::ranges::sort(sorted);
  return {shape_of(design), quantile(sorted, 0.5)};
}

double TimedStep::mean() const {
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

std::vector<TimedStep> draw_steps(const CalibrationPlan& plan, uint64_t seed, size_t count) {
  std::vector<TimedStep> steps;
  for (size_t i = 0; i < count; ++i) steps.push_back(draw_step(plan, Draw(seed, i)));
  return steps;
}

Result<Calibration> calibrate(std::shared_ptr<const LanguageModel> model, const CalibrationPlan& plan,
                              const std::function<bool(double)>& passed) {
  Calibration out;
  out.fitted = grid_steps(plan);
  const auto random = draw_steps(plan, 1, kRandom);
  out.fitted.insert(out.fitted.end(), random.begin(), random.end());
  out.held_out = draw_steps(plan, 2, kHeldOut);
  EngineOptions options;
  options.threads = plan.threads;
  options.max_streams = plan.streams;
  options.batch_tokens = plan.batch_tokens;
  options.kv_format = plan.kv_format;
  const StepTimerLimits limits{std::max(kv_tokens(out.fitted), kv_tokens(out.held_out)),
                               plan.depth + plan.batch_tokens};
  MILLRACE_TRY(auto timer, StepTimer::create(std::move(model), options, limits));
  MILLRACE_TRY_VOID(Calibrator(*timer, plan, passed).run(out));
  MILLRACE_TRY(out.swap, timer->swap_speed(std::max<int64_t>(1024, plan.depth)));
  if (plan.disk) {
    MILLRACE_TRY(out.disk, timer->disk_speed(*plan.disk, std::max<int64_t>(1024, plan.depth)));
  }
  MILLRACE_TRY(out.json, fit_cost_model(measured(out.fitted), out.swap, out.disk));
  MILLRACE_TRY(const auto cost, parse_cost_model(out.json, "fit"));
  out.errors = cost_errors(*cost, measured(out.held_out));
  out.slowdown = slowdown_of(out.fitted);
  auto json = parse_json(out.json);
  json["slowdown"] = out.slowdown;
  out.json = json.dump(1);
  return out;
}

Result<int> run_calibration(std::shared_ptr<const LanguageModel> model, const CalibrationPlan& plan,
                            const std::string& path, bool json) {
  catch_interrupts();
  Result<Calibration> result = Error::internal("");
  {
    ProgressBar bar("calibrating");
    result = calibrate(model, plan, [&](double fraction) {
      bar.update(fraction);
      return !interrupted();
    });
  }
  if (!result.ok() && result.error().kind == ErrorKind::cancelled) return 130;
  if (!result.ok()) return result.error();
  const Summary errors = summarize(result->errors);
  auto cost = parse_json(result->json);
  cost["made_by"] = {{"model", model->info().name},
                     {"threads", plan.threads > 0 ? plan.threads : available_cores()},
                     {"kv_format", plan.kv_format},
                     {"batch_tokens", plan.batch_tokens},
                     {"streams", plan.streams},
                     {"depth", plan.depth},
                     {"fitted_steps", result->fitted.size()},
                     {"held_out_steps", result->held_out.size()},
                     {"rounds", result->rounds},
                     {"median_error", errors.p50},
                     {"p90_error", errors.p90},
                     {"most_error", errors.max}};
  MILLRACE_TRY(const ShapeTable shapes,
               measure_shapes(*model, *model->parts().threads->get(plan.threads), plan.seconds * kShapesShare));
  cost["kernel_shapes"] = parse_json(shapes_json(shapes, model->parts().kernels.isa));
  if (!path.empty()) {
    const std::string text = cost.dump(1) + "\n";
    std::FILE* file = std::fopen(path.c_str(), "wb");
    const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if ((file && std::fclose(file) != 0) || !written) return Error::user(fmt::format("{}: cannot be written", path));
  }
  if (json)
    print_json_line(cost);
  else
    print_text(*result, errors, shapes, path);
  return 0;
}

}  // namespace millrace
