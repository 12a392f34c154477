#include "prompt_flags.h"

#include "evaluate/prompt_scores.h"
#include "run/language_model.h"

namespace millrace {

void PromptFlags::add_to(CLI::App* command) {
  command->add_option("--compress-prompt", passes,
                      "Compressor NAME[:key=value,...] of prompts; ANSWERS CHANGE. Repeatable, applied in order. See "
                      "millrace techniques --family prompt");
}

Result<std::vector<PromptEffect>> PromptFlags::compress(const std::shared_ptr<const LanguageModel>& model, int threads,
                                                        int64_t context, Request& request) const {
  if (passes.empty()) return std::vector<PromptEffect>();
  MILLRACE_TRY(const PromptPipeline pipeline, PromptPipeline::create(passes));
  ModelScores scores(model, threads);
  MILLRACE_TRY_VOID(scores.open(pipeline.models()));
  if (context == 0) context = model->parts().model->context();
  MILLRACE_TRY(CompressedPrompt compressed, pipeline.apply(model->parts().tokenizer.get(), request.prompt, {},
                                                           prompt_budget(context, request.max_tokens), &scores));
  request.prompt = std::move(compressed.tokens);
  return std::move(compressed.effects);
}

}  // namespace millrace
