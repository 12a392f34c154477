// CostModel: what a step takes, for policies that promise times and for the simulator, which runs on it. One file each
// in costs/. Times are seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace millrace {

// What matters of a step for its cost.
struct StepShape {
  int64_t tokens = 0;   // that run
  int64_t outputs = 0;  // sampled chunks
  int64_t keys = 0;     // whose KV is read: over the chunks, the tokens of the stream up to the chunk's end
  double pairs = 0;     // (token, earlier key) pairs that attention looks at

  // Adds a chunk of `count` tokens behind `first` stored ones.
  void add(int64_t first, int64_t count, bool sample) {
    tokens += count;
    outputs += sample;
    keys += first + count;
    pairs += static_cast<double>(count) * (static_cast<double>(first) + 0.5 * static_cast<double>(count + 1));
  }
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual double step_seconds(const StepShape& shape) const = 0;
  virtual double swap_seconds(int64_t tokens) const = 0;  // of moving that many tokens' keys and values one way
  // The same from the disk, where prefixes are stored.
  virtual double load_seconds(int64_t tokens) const { return swap_seconds(tokens); }
  virtual void observe_load(int64_t /*tokens*/, double /*seconds*/) {}     // a load that was done
  virtual void observe(const StepShape& /*shape*/, double /*seconds*/) {}  // a step that was run

  // Computing the tokens [0, count) of a stream in steps of `chunk`, nobody beside it.
  double prefill_seconds(int64_t count, int64_t chunk) const;
};

// Made for given hardware. `text` is JSON; see costs/analytic.cc, costs/piecewise.cc and costs/table.cc for the fields.
// Errors: user.
Result<std::unique_ptr<CostModel>> parse_cost_model(const std::string& text, const std::string& source);
// A file, or the name of a machine that is built in (costs/analytic.cc). Errors: user.
Result<std::unique_ptr<CostModel>> load_cost_model(const std::string& path_or_name);

// Learns from the steps of the engine that asks it (costs/learned.cc).
std::unique_ptr<CostModel> make_learned_cost();

}  // namespace millrace
