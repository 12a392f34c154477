// `millrace bench --calibrate`: measures steps of a model on this machine and fits the cost model used by `millrace
// simulate --cost` and `millrace replay --predict`.
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
  double seconds = 60;         // time limit for adding rounds; there are always at least two
  std::string kv_format = "f16";
  std::optional<std::string> disk;  // folder for timing loads from disk; nullopt: not timed
};

enum class StepKind { prefill, decode, mixed };
const char* step_kind_name(StepKind kind);

struct TimedStep {
  StepKind kind = StepKind::decode;
  StepDesign design;
  std::vector<double> samples;  // seconds

  MeasuredStep measured() const;  // the median
  double mean() const;            // mean of the samples, seconds
};

struct Calibration {
  std::string json;  // the cost model
  std::vector<TimedStep> fitted, held_out;
  std::vector<double> errors;  // errors of the held-out steps, in order
  double slowdown = 1;         // mean over median time: the cost of interference from other processes
  SwapSpeed swap;
  DiskSpeed disk;
  int64_t rounds = 0;
};

// Steps of random shapes; a pure function of the seed.
std::vector<TimedStep> draw_steps(const CalibrationPlan& plan, uint64_t seed, size_t count);

// Calls `passed` with the fraction done; stops if it returns false. Errors: user, unsupported, resource, cancelled.
Result<Calibration> calibrate(std::shared_ptr<const LanguageModel> model, const CalibrationPlan& plan,
                              const std::function<bool(double)>& passed);

// Calibrates, writes the cost model to `path` ("": nowhere) and prints the prediction errors. Errors: as calibrate(),
// and user (the file).
Result<int> run_calibration(std::shared_ptr<const LanguageModel> model, const CalibrationPlan& plan,
                            const std::string& path, bool json);

}  // namespace millrace
