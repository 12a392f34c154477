// The PARAMETER lines of a Modelfile, or the field `parameters` of Ollama's /api/create, as defaults of requests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "millrace/request.h"

namespace millrace {

struct ModelDefaults {
  std::vector<std::pair<std::string, std::string>> sampling;  // options and values of sampling/schema.h
  std::vector<std::string> stop;
  int64_t context = 0;      // 0: not given
  int64_t max_tokens = -1;  // tokens of an answer; -1: no limit
  std::string ranker;       // recipe to rank documents with (prompt/rank_recipes.h); "": the model's own head
};

// Errors: user (an unknown parameter, a value out of bounds). Parameters that only place work on devices are ignored.
Result<ModelDefaults> model_defaults(const std::vector<std::pair<std::string, std::string>>& parameters);

Result<void> apply_defaults(const ModelDefaults& defaults, SamplingOptions& options);

// Returns a line that says that the context is shorter than the model's, and which flag raises it; "": it is not, or
// `given` tokens were asked for (0: none were). `trained`: the model's context.
std::string capped_context_note(int64_t given, int64_t trained);

}  // namespace millrace
