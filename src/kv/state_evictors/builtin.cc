// The state evictors; the first one is the default.
#include <algorithm>

#include "base/choose.h"
#include "kv/state_evictors/factories.h"

namespace millrace {

const Registry<StateEvictorFactory>& state_evictors() {
  using Type = OptionSpec::Type;
  static const Registry<StateEvictorFactory> registry(
      {.loss = Loss::lossless, .test = "src/kv/state_evictor_test.cc"},
      {
          {{"state_evictor",
            "last",
            "keeps the last state of each prompt, branch and answer; evicts the least recently used one",
            "",
            {}},
           make_last_states},
          {{"state_evictor",
            "every",
            "keeps every k-th multiple of the stride, too; evicts the least recently used one",
            "",
            {{"k", Type::integer, "16", 1, 1 << 20, "strides between copies that are always taken"}}},
           make_every_state},
          {{"state_evictor",
            "marconi",
            "keeps states at branches and ends of conversations; evicts by recency and by the tokens that a hit saves",
            "Pan et al., 2024, Marconi: Prefix Caching for the Era of Hybrid LLMs",
            {{"alpha", Type::number, "1", 0, 1000, "weight of the saved tokens relative to recency"}}},
           make_marconi_states},
      });
  return registry;
}

Result<std::unique_ptr<StateEvictor>> make_state_evictor(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("state evictor", state_evictors(), text));
  return chosen.member(chosen.options);
}

size_t oldest_state(std::span<const StateUse> held) {
  return static_cast<size_t>(std::ranges::min_element(held, {}, &StateUse::last_use) - held.begin());
}

}  // namespace millrace
