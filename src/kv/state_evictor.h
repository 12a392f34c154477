// StateEvictor: decides which copies of recurrent states the prefix cache takes and keeps. A prompt that begins with
// stored tokens continues from the last copy among them, and computes only the tokens behind it. All copies have the
// same size, and there are as many slots as the budget holds, so a policy weighs places, not bytes.
//
//   prompt of a first request   |----------------------------C--|          C: the prompt's last multiple of the stride
//   its answer                                                  |---C---C  the newest multiple replaces the one before
//   prompt of a second request  |-----------B----------------C--|          B: where it leaves what is stored
//
// Always taken: C and B, and the newest multiple of an answer. Stateless and const; called on the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/registry.h"
#include "base/result.h"

namespace millrace {

// Where a copy was taken.
enum class StatePlace : uint8_t {
  prompt,  // last multiple of the stride in the prompt
  branch,  // where a prompt left what was stored: another prompt has shown that the tokens before it are reused
  answer   // any other multiple
};

// Usage data of one copy.
struct StateUse {
  int64_t tokens = 0;    // number of tokens before it
  int64_t saved = 0;     // tokens behind the next copy before it on its path: a hit computes that many fewer
  int64_t hits = 0;      // prompts that continued from it
  int64_t last_use = 0;  // counts stores and hits of all copies
  int64_t paths = 0;     // number of stored blocks that follow it directly
};

class StateEvictor {
 public:
  virtual ~StateEvictor() = default;
  // Returns true if a stream also takes a copy at `multiple` strides, counted from 1.
  virtual bool takes(int64_t /*multiple*/) const { return false; }
  // Returns true if the copy at `multiple` strides stays when its stream stores a later one. Copies that have been hit
  // or have several paths stay in any case.
  virtual bool keeps(StatePlace place, int64_t multiple) const = 0;
  // Returns the index of the copy that is evicted for another one. `held`: all copies, at least one.
  virtual size_t victim(std::span<const StateUse> held) const = 0;
};

// Returns the index of the copy that was used least recently.
size_t oldest_state(std::span<const StateUse> held);

using StateEvictorFactory = std::unique_ptr<StateEvictor> (*)(const OptionValues& options);
const Registry<StateEvictorFactory>& state_evictors();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<StateEvictor>> make_state_evictor(std::string_view text);

}  // namespace millrace
