// Prints the decisions of `--draft-length auto`, as JSON and in words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "millrace/engine.h"

namespace millrace {

// {"chosen_steps", "trial_steps", "declined_steps", "expected_tokens", "expected_time", "expected_gain", "reason"}
nlohmann::ordered_json draft_decisions_json(const DraftDecisions& decisions);

// Why drafts are verified or not at present, in one sentence without a full stop.
std::string draft_reason(const DraftDecisions& decisions);

// The counts of `now` less those of `before`, and the estimates of `now`.
DraftDecisions decisions_since(const DraftDecisions& before, DraftDecisions now);

}  // namespace millrace
