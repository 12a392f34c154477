// The linear program of FlexGen (Sheng et al., 2023, "FlexGen: High-Throughput Generative Inference of Large Language
// Models with a Single GPU", section 4): how much of the weights, keys and activations each level of memory holds, for
// the shortest time of a block of streams.
//
//   level 0 computes; level j is reached through the links j, j - 1, ..., 1, each with a rate for reads and for writes
//
//   minimize    P + (generated - 1) G            seconds of one layer in prefill, and in one decode step
//   subject to  P, G >= each link's bytes / its rate, and >= the computation: all of them overlap
//               what a level holds <= its bytes; the shares of weights, of keys and of activations each add up to 1
//
// The paper has three levels (GPU, CPU, disk) and 9 shares; the number of levels is free here. A block is the set of
// streams that share each read of a layer: the paper's bls. Its size is tried from 1 on, as in the paper.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct OffloadLevel {
  std::string name;
  double bytes = 0;        // bytes that weights, keys and activations may have there
  double read_bytes = 0;   // bytes a second to the level before it; of level 0 unused
  double write_bytes = 0;  // bytes a second from the level before it
};

struct FlexgenProblem {
  std::vector<OffloadLevel> levels;  // at least one; the first one computes
  int64_t layers = 0;
  double layer_bytes = 0;       // weights of one layer
  double key_bytes = 0;         // keys and values of one token in one layer
  double activation_bytes = 0;  // the residual of one token
  // Layers of weights that are on the way, in memory of level 0, in addition to the layers that stay there.
  double layers_in_flight = 1;
  int64_t streams = 1;  // the largest block
  int64_t prompt = 1, generated = 1;
  int64_t chunk = INT64_MAX;  // tokens of a prompt that share a read of a layer
  // Seconds by which a pass takes longer for each byte that is read meanwhile.
  double read_work = 0;
  // Seconds of one layer without any transfer, for one token of each of `rows` streams, and for `rows` prompt tokens.
  std::function<double(int64_t rows)> decode_seconds, prefill_seconds;
  bool keys_move = true;         // false: all keys are in level 0
  bool activations_move = true;  // false: all activations are in level 0
};

struct FlexgenPolicy {
  int64_t block = 0;  // streams
  // Shares by level.
  std::vector<double> weights, keys, activations;
  double prefill_seconds = 0, decode_seconds = 0;  // one layer
  double tokens_per_second = 0;                    // generated tokens over the time of prefill and decode steps
  double decode_tokens_per_second = 0;

  // "block 16; weights 41 % memory, 59 % disk; keys 100 % memory; ..."
  std::string text(const FlexgenProblem& problem) const;
};

// The best shares for blocks of `block` streams. Errors: resource (the levels do not hold such a block), internal (the
// solver).
Result<FlexgenPolicy> solve_flexgen(const FlexgenProblem& problem, int64_t block);
// The best of blocks of 1, 2, 4 ... streams and of problem.streams. Errors: as solve_flexgen().
Result<FlexgenPolicy> best_flexgen_policy(const FlexgenProblem& problem);

}  // namespace millrace
