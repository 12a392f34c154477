// The flag --compress-prompt, short for --use prompt=...
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "millrace/model.h"
#include "millrace/request.h"
#include "prompt/pipeline.h"
#include "use_flag.h"

namespace millrace {

struct PromptFlags {
  std::vector<std::string> passes;  // NAME[:key=value,...]

  void add_to(CLI::App* command);
  // With the choice of --use. Errors (user): unknown names or options, both.
  Result<std::vector<std::string>> all(const UseFlag& use) const;
};

// Compresses the request's prompt, in which only special tokens are fixed. `context`: of prompt and answer, 0: the
// model's. Returns what was done, with an entry a pass. Errors: PromptPipeline::create and apply, ModelScores::open.
Result<std::vector<PromptEffect>> compress_prompt(const std::shared_ptr<const LanguageModel>& model,
                                                  const std::vector<std::string>& passes, int threads, int64_t context,
                                                  Request& request);

}  // namespace millrace
