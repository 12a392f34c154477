// The flag --compress-prompt.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "millrace/model.h"
#include "millrace/request.h"
#include "prompt/pipeline.h"

namespace millrace {

struct PromptFlags {
  std::vector<std::string> passes;  // NAME[:key=value,...]

  void add_to(CLI::App* command);
  // Compresses the request's prompt, in which only special tokens are fixed. `context`: of prompt and answer. Returns
  // what was done, with an entry a pass. Errors: PromptPipeline::create and apply, ModelScores::open.
  Result<std::vector<PromptEffect>> compress(const std::shared_ptr<const LanguageModel>& model, int threads,
                                             int64_t context, Request& request) const;
};

}  // namespace millrace
