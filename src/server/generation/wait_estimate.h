// WaitEstimate: how long a request that comes now to a model has to wait for its first token, by who is there already
// and by how fast prompts and answers are: as a cost model of the machine says (--cost-model), or without one as they
// went of late. Each place of the engine gives way after a mean answer; prompts are worked off one after another. How
// long a mean answer is, only answers tell. What the prefix cache may spare and how full the KV cache is are left out
// of account. Thread-safe.
//
//   first token = (open answers - places + 1, where above 0) x mean answer x seconds a token / places
//               + prompt tokens, of others and its own, x seconds a prompt token + a step
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
  // `cost` may be null. `chunk`: most tokens of a step.
  explicit WaitEstimate(int64_t places, std::unique_ptr<const CostModel> cost = nullptr, int64_t chunk = 512);
  ~WaitEstimate();
  // By the file that the engine's options name, as its engine has; without, or where it cannot be read, by what is
  // measured.
  static std::shared_ptr<WaitEstimate> of_engine(int64_t places, const std::string& cost_model, int64_t chunk);

  double place_seconds() const;                             // until one more may run
  double first_token_seconds(int64_t prompt_tokens) const;  // 0: nothing is known yet

 private:
  friend class WaitEntry;
  double place() const;
  double step() const;                       // of all places that are taken
  double prompts(int64_t own_tokens) const;  // of those who are there, and one more

  const std::unique_ptr<const CostModel> cost_;
  const int64_t chunk_;
  mutable std::mutex mutex_;
  int64_t places_;
  int64_t open_ = 0;                                                        // answers that have not ended
  int64_t prompt_tokens_ = 0;                                               // of prompts without a first token
  int64_t measured_ = 0;                                                    // answers that ended
  double answer_tokens_ = 0, step_seconds_ = 0, prompt_token_seconds_ = 0;  // means that forget
};

// One request in it; it leaves when this goes.
class WaitEntry {
 public:
  WaitEntry(std::shared_ptr<WaitEstimate> estimate, int64_t prompt_tokens, int64_t answers);
  ~WaitEntry();
  WaitEntry(const WaitEntry&) = delete;

  void prompt_done(int64_t tokens);  // its first token is there
  void answer_done(const RequestTimings& timings);

 private:
  std::shared_ptr<WaitEstimate> estimate_;
  int64_t prompt_tokens_, answers_;
};

}  // namespace millrace
