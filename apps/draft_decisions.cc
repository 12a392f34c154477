#include "draft_decisions.h"

#include <fmt/format.h>

#include "base/ordered_json.h"

namespace millrace {

nlohmann::ordered_json draft_decisions_json(const DraftDecisions& decisions) {
  return {{"chosen_steps", decisions.chosen},     {"trial_steps", decisions.trials},
          {"declined_steps", decisions.declined}, {"expected_tokens", decisions.yield},
          {"expected_time", decisions.time},      {"expected_gain", decisions.gain()},
          {"reason", draft_reason(decisions)}};
}

std::string draft_reason(const DraftDecisions& decisions) {
  if (decisions.chosen + decisions.trials + decisions.declined == 0) return "no step had a draft";
  return fmt::format(
      "a step with drafted tokens is expected to bring {:.2f} times the tokens of one without in {:.2f} times the time",
      decisions.yield, decisions.time);
}

DraftDecisions decisions_since(const DraftDecisions& before, DraftDecisions now) {
  now.chosen -= before.chosen;
  now.trials -= before.trials;
  now.declined -= before.declined;
  return now;
}

}  // namespace millrace
