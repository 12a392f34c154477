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

// Refuses every question, for pipelines without models.
class NoScores final : public PromptScores {
 public:
  Result<std::vector<float>> self_information(const std::string&, std::span<const TokenId>) override {
    return Error::internal("prompt: no model to score it");
  }
  Result<std::vector<std::vector<float>>> embeddings(const std::string&,
                                                     std::span<const std::vector<TokenId>>) override {
    return Error::internal("prompt: no model to embed it");
  }
  Result<std::string> answer(const std::string&, const std::string&, int64_t) override {
    return Error::internal("prompt: no model to summarize it");
  }
};

// The prompt between two compressors, and where its tokens come from.
struct Working {
  std::vector<TokenId> tokens;
  std::vector<std::string> texts;
  std::vector<PromptSource> sources;
  std::vector<int64_t> from;

  std::vector<char> fixed_in(PromptScope scope) const {
    std::vector<char> out;
    for (const PromptSource source : sources) out.push_back(in_scope(scope, source) ? 0 : 1);
    return out;
  }
};

Working begin_with(const Tokenizer& tokenizer, std::span<const TokenId> tokens, std::span<const PromptSource> sources) {
  Working out;
  out.tokens.assign(tokens.begin(), tokens.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const PromptSource source = i < sources.size() ? sources[i] : PromptSource::text;
    out.texts.push_back(tokenizer.piece(tokens[i]));
    out.sources.push_back(is_special(tokenizer, tokens[i]) ? PromptSource::fixed : source);
    out.from.push_back(static_cast<int64_t>(i));
  }
  return out;
}

// Whether a compressor kept what it must: every fixed token, in order, and between two of them only tokens that were
// there, none of them twice. Tokens are written only where tokens could be dropped.
bool is_rest(const PromptRest& rest, std::span<const char> fixed) {
  const auto size = std::ssize(fixed);
  std::vector<char> taken(fixed.size());
  int64_t begin = 0, written = 0;  // `begin`: of the tokens since the last fixed one
  const auto next_fixed = [&](int64_t from) {
    return std::find(fixed.begin() + from, fixed.end(), char{1}) - fixed.begin();
  };
  int64_t end = next_fixed(0);
  for (const int64_t index : rest.kept) {
    if (index == kWrittenToken) {
      if (begin == end || ++written > std::ssize(rest.written)) return false;
      continue;
    }
    if (index < begin || index > end || index >= size || taken[static_cast<size_t>(index)]++) return false;
    if (index < end) continue;
    begin = end + 1;
    end = next_fixed(begin);
  }
  return end == size && written == std::ssize(rest.written);
}

// A written token has the source of the token before it in the prompt, or else of the one after it.
Working select(const Working& prompt, const PromptRest& rest, const Tokenizer& tokenizer) {
  Working out;
  size_t written = 0;
  PromptSource source = PromptSource::text;
  for (const int64_t index : rest.kept) {
    const bool own = index == kWrittenToken;
    const TokenId token = own ? rest.written[written++] : prompt.tokens[static_cast<size_t>(index)];
    if (!own && prompt.sources[static_cast<size_t>(index)] != PromptSource::fixed)
      source = prompt.sources[static_cast<size_t>(index)];
    out.tokens.push_back(token);
    out.texts.push_back(own ? tokenizer.piece(token) : prompt.texts[static_cast<size_t>(index)]);
    out.sources.push_back(own ? source : prompt.sources[static_cast<size_t>(index)]);
    out.from.push_back(own ? kWrittenToken : prompt.from[static_cast<size_t>(index)]);
  }
  return out;
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

std::vector<std::string> PromptPipeline::models_for(PromptNeeds need) const {
  std::vector<std::string> out;
  for (const Pass& pass : passes_)
    if (pass.compressor->needs() & need && std::ranges::find(out, pass.compressor->model()) == out.end())
      out.push_back(pass.compressor->model());
  return out;
}

Result<void> PromptPipeline::open_files(Files& files) const {
  for (const Pass& pass : passes_) {
    const std::string path = pass.compressor->file();
    if (path.empty() || files.contains({pass.name, path})) continue;
    auto opened = pass.compressor->open_file();
    if (!opened.ok())
      return Error{opened.error().kind, fmt::format("prompt {}: {}", pass.name, opened.error().message)};
    files[{pass.name, path}] = std::move(*opened);
  }
  return {};
}

bool PromptPipeline::recovers() const {
  return std::ranges::any_of(passes_, [](const Pass& pass) { return pass.compressor->recovers(); });
}

Result<CompressedPrompt> PromptPipeline::apply(const Tokenizer* tokenizer, std::span<const TokenId> tokens,
                                               std::span<const PromptSource> sources, int64_t budget,
                                               PromptScores* scores) const {
  if (!tokenizer) return Error::unsupported("prompt: the model has no tokenizer, so its prompts cannot be compressed");
  NoScores none;
  Working prompt = begin_with(*tokenizer, tokens, sources);
  CompressedPrompt out;
  for (const Pass& pass : passes_) {
    const auto began = std::chrono::steady_clock::now();
    PromptEffect effect{.name = pass.name, .options = pass.options, .tokens_before = std::ssize(prompt.tokens)};
    const std::vector<char> fixed = prompt.fixed_in(pass.compressor->scope());
    if (std::ranges::count(fixed, char{0}) > 0) {
      MILLRACE_TRY(const PromptRest rest,
                   pass.compressor->compress({prompt.tokens, prompt.texts, fixed, prompt.sources, tokenizer},
                                             scores ? *scores : none, std::max<int64_t>(1, budget)));
      if (!is_rest(rest, fixed))
        return Error::internal(fmt::format("prompt {}: kept what is not a selection of its prompt", pass.name));
      prompt = select(prompt, rest, *tokenizer);
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
