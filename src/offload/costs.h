// The costs of passes on this machine, and the sizes of a model: the input of every prediction of a source's speed.
//
// Times of passes are those of a few layers of the model itself, measured and scaled by bytes
// (run/plan/offload_probe.h). A pass of one token is bound by the bytes of the weights that it multiplies, and a pass
// of many tokens by arithmetic, whose amount is proportional to these bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

// The sizes of a model that predictions use.
struct OffloadModel {
  int64_t layers = 0;
  double token_bytes = 0;       // weights that one token multiplies in a decode step, with the head
  double head_bytes = 0;        // those of the head among them
  double key_bytes = 0;         // keys and values of one token in all layers, in format f16
  double activation_bytes = 0;  // the residual of one token
  int64_t experts = 0;          // routed experts of a layer; 0: no mixture
  int64_t used_experts = 0;     // experts that a token chooses
};

// The work that is predicted: `streams` streams, each with a prompt and an answer.
struct OffloadWork {
  int64_t streams = 1;
  int64_t prompt = 512;                    // tokens of a prompt
  int64_t generated = 128;                 // tokens of an answer
  int64_t chunk = 512;                     // tokens of a prompt that one pass takes, at most
  std::optional<double> expert_skew = {};  // Zipf exponent of the frequencies of experts; without: as measured
  int64_t cached_bytes = 0;                // memory that the system's page cache may use for the model's file

  // Tokens of a stream, on average over its decode steps.
  double mean_context() const { return static_cast<double>(prompt) + static_cast<double>(generated) / 2; }
};

// Seconds of a pass of `rows` tokens for each byte that one token multiplies.
struct PassCost {
  int64_t rows = 1;
  double seconds_per_byte = 0;
};

struct OffloadCosts {
  std::vector<PassCost> decode;   // one token of each stream; ascending in rows
  std::vector<PassCost> prefill;  // tokens of one prompt; the head is not counted
  double read_bytes = 1e9;        // bytes a second, layers that are read ahead
  double expert_bytes = 1e9;      // bytes a second, experts that a pass waits for
  double cached_bytes = 5e9;      // bytes a second, pages of a mapped file that the page cache has
  double write_bytes = 5e8;       // bytes a second
  double key_bytes = 2e10;        // bytes a second, keys and values that a decode step reads
  double expert_skew = 0;         // Zipf exponent of the frequencies of experts; 0: all are equally frequent
  double read_work = 0;           // seconds by which a pass takes longer for each byte that is read meanwhile
  bool measured = false;          // false: only the disk was measured, and passes are estimated
};

// Seconds of a pass over weights in memory. `bytes`: what one token multiplies.
double pass_seconds(const std::vector<PassCost>& costs, int64_t rows, double bytes);
// Seconds of a pass that reads `bytes` while it computes for `compute` seconds.
double overlapped_seconds(const OffloadCosts& costs, double compute, double bytes);
// Seconds of one decode step of the whole model, in which each of `rows` streams has `context` tokens, without reads.
double decode_seconds(const OffloadCosts& costs, const OffloadModel& model, int64_t rows, double context);
// Seconds of a pass of `rows` tokens of a prompt through the whole model, without reads.
double prefill_seconds(const OffloadCosts& costs, const OffloadModel& model, int64_t rows);

// The share of uses of experts that a cache serves which holds the most frequent `share` of `experts` experts, if
// frequencies fall with the exponent `skew`. With skew 0 it is `share`.
double expert_hits(int64_t experts, double share, double skew);
// The exponent with which a cache of `share` of the experts serves `hits` of the uses, from 0 to kMaxExpertSkew.
double expert_skew_of(int64_t experts, double share, double hits);
inline constexpr double kMaxExpertSkew = 4;
// Expected number of different experts of a layer that `rows` tokens choose together, `used` each.
double distinct_experts(int64_t experts, int64_t used, int64_t rows);

// Stores the costs that were measured for a model on this machine, in a file next to its packed cache. `key` names what
// the figures depend on (the model's size, the instruction set, the threads); costs with another key are not read.
Result<void> write_costs(const std::string& path, const std::string& key, const OffloadCosts& costs);
// Errors: user (no such file, another key, or not a file of costs).
Result<OffloadCosts> read_costs(const std::string& path, const std::string& key);

}  // namespace millrace
