// WaitEstimate: estimates how long a new request to a model waits for its first token, from the open requests and the
// speed of prefill and decode. Speeds are those of a cost model of the machine (--cost-model), or without one those of
// recent measurements. The estimate assumes that each place of the engine becomes free after an answer of mean length,
// and that prompts are processed one after another. The mean length is always measured. Prefix cache hits and the fill
// level of the KV cache are ignored. Thread-safe.
//
//   first token = max(0, open answers - places + 1) x mean answer tokens x seconds per token / places
//               + prompt tokens, of others and its own, x seconds per prompt token + one step
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "millrace/events.h"

namespace millrace {

class CostModel;

class WaitEstimate {
 public:
  // `cost` may be null. `chunk`: maximum tokens of a step.
  explicit WaitEstimate(int64_t places, std::unique_ptr<const CostModel> cost = nullptr, int64_t chunk = 512);
  ~WaitEstimate();
  // Uses the engine's cost model file; if there is none or it cannot be read, uses measurements.
  static std::shared_ptr<WaitEstimate> of_engine(int64_t places, const std::string& cost_model, int64_t chunk);

  double place_seconds() const;                             // until another request can run
  double first_token_seconds(int64_t prompt_tokens) const;  // 0: no data yet

 private:
  friend class WaitEntry;
  double place() const;
  double step() const;                       // with all taken places
  double prompts(int64_t own_tokens) const;  // prompts of the open requests and a new one

  const std::unique_ptr<const CostModel> cost_;
  const int64_t chunk_;
  mutable std::mutex mutex_;
  int64_t places_;
  int64_t open_ = 0;                                                        // unfinished answers
  int64_t prompt_tokens_ = 0;                                               // tokens of prompts still in prefill
  int64_t measured_ = 0;                                                    // finished answers
  double answer_tokens_ = 0, step_seconds_ = 0, prompt_token_seconds_ = 0;  // exponentially decaying means
};

// Counts one request in the estimate for its lifetime.
class WaitEntry {
 public:
  WaitEntry(std::shared_ptr<WaitEstimate> estimate, int64_t prompt_tokens, int64_t answers);
  ~WaitEntry();
  WaitEntry(const WaitEntry&) = delete;

  void prompt_done(int64_t tokens);  // the first token has been generated
  void answer_done(const RequestTimings& timings);

 private:
  std::shared_ptr<WaitEstimate> estimate_;
  int64_t prompt_tokens_, answers_;
};

}  // namespace millrace
