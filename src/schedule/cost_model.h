// CostModel: how long a step takes, for policies with latency targets and for the simulator. One file each in costs/.
// Times are in seconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace millrace {

// The properties of a step that determine its cost.
struct StepShape {
  int64_t tokens = 0;   // tokens that run
  int64_t outputs = 0;  // rows of logits
  int64_t keys = 0;     // keys read: summed over the chunks, the stream's tokens up to the end of the chunk
  double pairs = 0;     // (token, earlier key) pairs in attention
  double skipped = 0;   // tokens that an exit gate saves: each token counts the share of the layers that it skips
  double deepest = 0;   // largest share of the layers that a chunk runs; 0: there is no chunk yet

  // Adds a chunk of `count` tokens after `first` stored ones, with `rows` rows of logits. `depth`: share of the model's
  // layers that they run. Keys and pairs are on average over all layers.
  void add(int64_t first, int64_t count, int64_t rows, double depth = 1) {
    const int64_t read = first + count;
    const double seen =
        static_cast<double>(count) * (static_cast<double>(first) + 0.5 * static_cast<double>(count + 1));
    tokens += count;
    outputs += rows;
    keys += depth == 1 ? read : std::llround(depth * static_cast<double>(read));
    pairs += depth * seen;
    skip(count, depth);
  }
  // Notes the depth of a chunk whose tokens, keys and pairs are counted already.
  void skip(int64_t count, double depth) {
    skipped += (1 - depth) * static_cast<double>(count);
    deepest = std::max(deepest, depth);
  }
  // Tokens of whole passes that take as long.
  double whole_tokens() const { return static_cast<double>(tokens) - skipped; }
  // Share of the layers whose weights are read.
  double read_layers() const { return deepest > 0 ? deepest : 1; }
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual double step_seconds(const StepShape& shape) const = 0;
  virtual double swap_seconds(int64_t tokens) const = 0;  // moving that many tokens' keys and values one way
  // Seconds to load tokens from the disk of the prefix store.
  virtual double load_seconds(int64_t tokens) const { return swap_seconds(tokens); }
  virtual void observe_load(int64_t /*tokens*/, double /*seconds*/) {}     // a completed load
  virtual void observe(const StepShape& /*shape*/, double /*seconds*/) {}  // a completed step

  // Computing the tokens [0, count) of a stream in steps of `chunk`, with nothing else running.
  double prefill_seconds(int64_t count, int64_t chunk) const;
};

// Parses the cost model of given hardware. `text` is JSON; see costs/analytic.cc, costs/piecewise.cc and costs/table.cc
// for the fields. Errors: user.
Result<std::unique_ptr<CostModel>> parse_cost_model(const std::string& text, const std::string& source);
// Loads a file or a built-in machine by name (costs/analytic.cc). Errors: user.
Result<std::unique_ptr<CostModel>> load_cost_model(const std::string& path_or_name);

// Returns `cost` for a KV cache with `ratio` times the bytes of the one that `cost` describes. `read_ratio`: part of
// these bytes that a step reads for a key.
std::unique_ptr<CostModel> make_scaled_kv_cost(std::unique_ptr<CostModel> cost, double ratio, double read_ratio);

// Learns from the steps of the engine that uses it (costs/learned.cc).
std::unique_ptr<CostModel> make_learned_cost();

}  // namespace millrace
