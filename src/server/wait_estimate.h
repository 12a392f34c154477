// WaitEstimate: how long a request that comes now has to wait for its first token, by how fast prompts and answers went of
// late and by who is there already. Each place of the engine gives way after a mean answer; prompts are worked off one after
// another. What the prefix cache may spare and how full the KV cache is are left out of account. Thread-safe.
//
//   first token = (open answers - places + 1, where above 0) x mean answer x seconds a token / places
//               + prompt tokens, of others and its own, x seconds a prompt token + a step
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "millrace/events.h"

namespace millrace {

class WaitEstimate {
 public:
  explicit WaitEstimate(int64_t places) : places_(places) {}

  double place_seconds() const;                            // until one more may run
  double first_token_seconds(int64_t prompt_tokens) const;  // 0: nothing was measured yet

 private:
  friend class WaitEntry;
  double place() const;

  mutable std::mutex mutex_;
  int64_t places_;
  int64_t open_ = 0;           // answers that have not ended
  int64_t prompt_tokens_ = 0;  // of prompts without a first token
  int64_t measured_ = 0;       // answers that ended
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
