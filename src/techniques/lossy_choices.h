// Lists how a loaded model and its engine differ from plain ones, if answers change with the difference: the source of
// every report to clients. A table in lossy_choices.cc says, for each family with such members, where its choice is
// kept. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/options.h"

namespace millrace {

struct LossyChoice {
  std::string_view family;
  std::string text;  // NAME[:key=value,...], as given
};

// The choices with which answers may differ from those of a plain engine, in the order of the table. Among them are
// acceptance rules that keep the distribution but draw other tokens, and every KV format but the default one.
std::vector<LossyChoice> lossy_choices(const LoadOptions& load, const EngineOptions& engine);

}  // namespace millrace
