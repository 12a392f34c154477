#include "server/generation/prompt_parts.h"

#include "prompt/prompt_report.h"
#include "run/language_model.h"
#include "server/models/served_model.h"

namespace millrace {

void take_compressed(GenerationRequest& params, std::vector<CompressedPrompt> compressed) {
  std::vector<PromptEffect> effects;  // of each pass over all prompts
  for (size_t i = 0; i < params.prompts.size(); ++i) {
    AskedPrompt& prompt = params.prompts[i];
    params.compressed_tokens += std::ssize(prompt.tokens) - std::ssize(compressed[i].tokens);
    add_effects(effects, compressed[i].effects);
    if (compressed[i].tokens == prompt.tokens) continue;
    prompt.tokens = std::move(compressed[i].tokens);
    if (params.echo) prompt.text = params.served->model->decode(prompt.tokens);
  }
  for (Json& one : applied_prompts(effects)) params.applied.push_back(std::move(one));
}

}  // namespace millrace
