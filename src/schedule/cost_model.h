// CostModel: predicts the duration of a step in seconds, for policies with latency targets and for the simulator. Each
// cost model is one file in costs/.
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
  int64_t keys = 0;     // keys read: the stream's tokens up to the end of the chunk, summed over chunks
  double pairs = 0;     // pairs of a token and a key that it attends
  double skipped = 0;   // fractions of the layers that tokens skip because of an exit gate, summed over tokens
  double deepest = 0;   // largest fraction of the layers that a chunk runs; 0: there is no chunk yet

  // Adds a chunk of `count` tokens after `first` stored tokens, with `rows` rows of logits. `depth`: fraction of the
  // model's layers that the chunk runs. Keys and pairs are averages over all layers.
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
  // Adds the depth of a chunk of `count` tokens whose tokens, keys and pairs have been added already.
  void skip(int64_t count, double depth) {
    skipped += (1 - depth) * static_cast<double>(count);
    deepest = std::max(deepest, depth);
  }
  // Returns the number of tokens through all layers that cost the same.
  double whole_tokens() const { return static_cast<double>(tokens) - skipped; }
  // Returns the fraction of the layers whose weights are read.
  double read_layers() const { return deepest > 0 ? deepest : 1; }
};

class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual double step_seconds(const StepShape& shape) const = 0;
  virtual double swap_seconds(int64_t tokens) const = 0;  // to move the tokens' keys and values one way
  // Returns the seconds to load tokens from the prefix store's disk.
  virtual double load_seconds(int64_t tokens) const { return swap_seconds(tokens); }
  virtual void observe_load(int64_t /*tokens*/, double /*seconds*/) {}     // learns from a completed load
  virtual void observe(const StepShape& /*shape*/, double /*seconds*/) {}  // learns from a completed step

  // Returns the seconds to compute tokens [0, count) of a stream in steps of `chunk` tokens, with no other stream
  // running.
  double prefill_seconds(int64_t count, int64_t chunk) const;
};

// Parses the cost model of given hardware. `text` is JSON; see costs/analytic.cc, costs/piecewise.cc and costs/table.cc
// for the fields. Errors: user.
Result<std::unique_ptr<CostModel>> parse_cost_model(const std::string& text, const std::string& source);
// Loads a file or a built-in machine by name (costs/analytic.cc). Errors: user.
Result<std::unique_ptr<CostModel>> load_cost_model(const std::string& path_or_name);

// Returns a variant of `cost` for a KV cache with `ratio` times the bytes per token. `read_ratio`: fraction of these
// bytes that a step reads for a key.
std::unique_ptr<CostModel> make_scaled_kv_cost(std::unique_ptr<CostModel> cost, double ratio, double read_ratio);

// Returns a cost model that learns from the steps of its engine (costs/learned.cc).
std::unique_ptr<CostModel> make_learned_cost();

}  // namespace millrace
