#include "prompt/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "text/tokenizer.h"

namespace millrace {
namespace {

bool is_special(const Tokenizer& tokenizer, TokenId token) {
  const auto& types = tokenizer.spec().types;
  const bool known = token >= 0 && static_cast<size_t>(token) < types.size();
  return tokenizer.is_control(token) || (known && types[static_cast<size_t>(token)] == TokenType::user_defined);
}

// The prompt between two compressors, and where its tokens come from.
struct Working {
  std::vector<TokenId> tokens;
  std::vector<std::string> texts;
  std::vector<char> fixed;
  std::vector<int64_t> from;
};

Working begin_with(const Tokenizer& tokenizer, std::span<const TokenId> tokens, std::span<const char> fixed) {
  Working out;
  out.tokens.assign(tokens.begin(), tokens.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    out.texts.push_back(tokenizer.piece(tokens[i]));
    out.fixed.push_back((i < fixed.size() && fixed[i]) || is_special(tokenizer, tokens[i]) ? 1 : 0);
    out.from.push_back(static_cast<int64_t>(i));
  }
  return out;
}

// Whether a compressor kept what it must: ascending indices, every fixed token among them.
bool is_selection(std::span<const int64_t> kept, const Working& of) {
  size_t next = 0;
  for (const int64_t index : kept) {
    if (index < static_cast<int64_t>(next) || index >= std::ssize(of.tokens)) return false;
    for (; next < static_cast<size_t>(index); ++next)
      if (of.fixed[next]) return false;
    ++next;
  }
  return std::ranges::count(std::span(of.fixed).subspan(next), char{1}) == 0;
}

void select(Working& prompt, std::span<const int64_t> kept) {
  for (size_t i = 0; i < kept.size(); ++i) {  // ascending: kept[i] >= i
    const auto at = static_cast<size_t>(kept[i]);
    prompt.tokens[i] = prompt.tokens[at];
    if (at != i) prompt.texts[i] = std::move(prompt.texts[at]);
    prompt.fixed[i] = prompt.fixed[at];
    prompt.from[i] = prompt.from[at];
  }
  prompt.tokens.resize(kept.size());
  prompt.texts.resize(kept.size());
  prompt.fixed.resize(kept.size());
  prompt.from.resize(kept.size());
}

}  // namespace

int64_t prompt_budget(int64_t context, int64_t answer_tokens) {
  const int64_t room = answer_tokens < 0 ? context / 8 : answer_tokens;
  return context - std::clamp<int64_t>(room, 1, std::max<int64_t>(1, context - 1));
}

Result<PromptPipeline> PromptPipeline::create(std::span<const std::string> passes) {
  PromptPipeline out;
  for (const std::string& text : passes) {
    const size_t colon = text.find(':');
    MILLRACE_TRY(auto compressor, make_prompt_compressor(text));
    out.passes_.push_back({text.substr(0, colon), colon == std::string::npos ? "" : text.substr(colon + 1),
                           std::shared_ptr<const PromptCompressor>(std::move(compressor))});
  }
  return out;
}

std::vector<std::string> PromptPipeline::models() const {
  std::vector<std::string> out;
  for (const Pass& pass : passes_)
    if (pass.compressor->needs() & kNeedsSelfInformation &&
        std::ranges::find(out, pass.compressor->model()) == out.end())
      out.push_back(pass.compressor->model());
  return out;
}

Result<CompressedPrompt> PromptPipeline::apply(const Tokenizer* tokenizer, std::span<const TokenId> tokens,
                                               std::span<const char> fixed, int64_t budget,
                                               PromptScores* scores) const {
  if (!tokenizer) return Error::unsupported("prompt: the model has no tokenizer, so its prompts cannot be compressed");
  Working prompt = begin_with(*tokenizer, tokens, fixed);
  CompressedPrompt out;
  for (const Pass& pass : passes_) {
    const auto began = std::chrono::steady_clock::now();
    PromptEffect effect{.name = pass.name, .options = pass.options, .tokens_before = std::ssize(prompt.tokens)};
    std::vector<float> information;
    const bool all_fixed = std::ranges::count(prompt.fixed, char{0}) == 0;
    if (pass.compressor->needs() & kNeedsSelfInformation && !all_fixed) {
      if (!scores) return Error::internal("prompt: no model to score it");
      MILLRACE_TRY(information, scores->self_information(pass.compressor->model(), prompt.tokens));
    }
    if (!all_fixed) {
      const auto kept =
          pass.compressor->keep({prompt.tokens, prompt.texts, prompt.fixed}, information, std::max<int64_t>(1, budget));
      if (!is_selection(kept, prompt))
        return Error::internal(fmt::format("prompt {}: kept what is not a selection of its prompt", pass.name));
      select(prompt, kept);
    }
    effect.tokens_after = std::ssize(prompt.tokens);
    effect.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    out.effects.push_back(std::move(effect));
  }
  out.tokens = std::move(prompt.tokens);
  out.kept = std::move(prompt.from);
  return out;
}

}  // namespace millrace
