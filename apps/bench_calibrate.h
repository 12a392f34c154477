// `millrace bench --calibrate`: measures steps of this machine and model and fits the cost model that `millrace
// simulate
// --cost` and `millrace replay --predict` read.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "run/language_model.h"
#include "schedule/cost_fit.h"
#include "step_timer.h"

namespace millrace {

struct CalibrationPlan {
  int threads = 0;
  int64_t batch_tokens = 512;  // most tokens in a step
  int64_t streams = 16;        // most chunks in a step
  int64_t depth = 2048;        // most tokens of a stream before its chunk
  double seconds =
      60;  // rounds are added while there is time; at least two, of which the model's steps take what they take
  std::string kv_format = "f16";
  std::optional<std::string> disk;  // folder on the disk that loads are timed from; nothing: none
};

enum class StepKind { prefill, decode, mixed };
const char* step_kind_name(StepKind kind);

struct TimedStep {
  StepKind kind = StepKind::decode;
  StepDesign design;
  std::vector<double> samples;  // seconds

  MeasuredStep measured() const;  // the median
  double mean() const;            // of the samples, seconds
};

struct Calibration {
  std::string json;  // the cost model
  std::vector<TimedStep> fitted, held_out;
  std::vector<double> errors;  // of the held-out steps, in their order
  double slowdown = 1;         // all samples over all medians: what neighbours on the machine cost
  SwapSpeed swap;
  DiskSpeed disk;
  int64_t rounds = 0;
};

// Steps of random shapes: a function of the seed alone.
std::vector<TimedStep> draw_steps(const CalibrationPlan& plan, uint64_t seed, size_t count);

// `passed` gets the fraction done; false stops. Errors: user, unsupported, resource, cancelled.
Result<Calibration> calibrate(std::shared_ptr<const LanguageModel> model, const CalibrationPlan& plan,
                              const std::function<bool(double)>& passed);

// Measures, writes the model to `path` ("": not) and prints the errors. Errors: as calibrate(), and user (the file).
Result<int> run_calibration(std::shared_ptr<const LanguageModel> model, const CalibrationPlan& plan,
                            const std::string& path, bool json);

}  // namespace millrace
