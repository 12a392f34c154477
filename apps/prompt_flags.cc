#include "prompt_flags.h"

#include <fmt/format.h>

#include "evaluate/prompt_scores.h"
#include "run/language_model.h"

namespace millrace {

void PromptFlags::add_to(CLI::App* command) {
  command
      ->add_option("--compress-prompt", passes,
                   "Compressor NAME[:key=value,...] of prompts; ANSWERS CHANGE. Repeatable, applied in order. See "
                   "millrace techniques --family prompt")
      ->allow_extra_args(false);
}

Result<std::vector<std::string>> PromptFlags::all(const UseFlag& use) const {
  MILLRACE_TRY(const auto uses, use.get());
  const std::vector<std::string> chosen = prompt_passes_of(uses);
  if (!chosen.empty() && !passes.empty())
    return Error::user(
        fmt::format("--use prompt={}: --compress-prompt is {}; give only one of them", chosen.front(), passes.front()));
  const auto& out = chosen.empty() ? passes : chosen;
  if (auto known = PromptPipeline::create(out); !known.ok()) return known.error();
  return out;
}

Result<std::vector<PromptEffect>> compress_prompt(const std::shared_ptr<const LanguageModel>& model,
                                                  const std::vector<std::string>& passes, int threads, int64_t context,
                                                  Request& request) {
  if (passes.empty()) return std::vector<PromptEffect>();
  MILLRACE_TRY(const PromptPipeline pipeline, PromptPipeline::create(passes));
  ModelScores scores(model, threads);
  MILLRACE_TRY_VOID(scores.open(pipeline));
  if (context == 0) context = model->parts().model->context();
  MILLRACE_TRY(CompressedPrompt compressed, pipeline.apply(model->parts().tokenizer.get(), request.prompt, {},
                                                           prompt_budget(context, request.max_tokens), &scores));
  request.prompt = std::move(compressed.tokens);
  return std::move(compressed.effects);
}

}  // namespace millrace
