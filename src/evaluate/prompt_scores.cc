#include "evaluate/prompt_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "prompt/token_ends.h"
#include "sampling/logprobs.h"

namespace millrace {
namespace {

constexpr float kNoScore = std::numeric_limits<float>::infinity();

// The information of a token is spread evenly over its bytes; each of the other tokens gets that of its own bytes.
std::vector<float> spread_over_bytes(std::span<const float> scores, std::span<const size_t> ends,
                                     std::span<const size_t> to) {
  std::vector<float> out;
  size_t at = 0;  // the score whose bytes are next
  for (size_t i = 0, begin = 0; i < to.size(); begin = to[i++]) {
    double sum = 0;
    for (size_t byte = begin; byte < to[i]; ++byte) {
      while (at < ends.size() && ends[at] <= byte) ++at;
      if (at == ends.size()) break;
      const size_t first = at == 0 ? 0 : ends[at - 1];
      sum += static_cast<double>(scores[at]) / static_cast<double>(ends[at] - first);
    }
    out.push_back(static_cast<float>(sum));
  }
  return out;
}

struct PlainText {
  std::string text;
  std::vector<size_t> ends;  // of each token in the text
};

// Maps the states of one tokenizer's tokens to the tokens of another that wrote the same text: each of them receives
// the mean over its bytes. States arrive in order.
class StatesByBytes {
 public:
  // `ends`, `to`: the ends, in bytes of the text, of the tokens whose states arrive, and of those that receive states.
  StatesByBytes(std::span<const size_t> ends, std::span<const size_t> to, const PromptScores::StateSink& sink)
      : ends_(ends), to_(to), sink_(sink) {}

  Result<void> add(size_t token, std::span<const float> state) {
    const size_t begin = token == 0 ? 0 : ends_[token - 1];
    sum_.resize(state.size());
    for (size_t byte = begin; byte < ends_[token]; ++byte) {
      while (next_ < to_.size() && to_[next_] <= byte) MILLRACE_TRY_VOID(emit());
      for (size_t i = 0; i < state.size(); ++i) sum_[i] += static_cast<double>(state[i]);
    }
    return {};
  }

  // Emits the remaining tokens, after the last state.
  Result<void> finish() {
    while (next_ < to_.size()) MILLRACE_TRY_VOID(emit());
    return {};
  }

 private:
  Result<void> emit() {
    const size_t bytes = to_[next_] - (next_ == 0 ? 0 : to_[next_ - 1]);
    std::vector<float> mean(sum_.size());
    for (size_t i = 0; i < mean.size() && bytes > 0; ++i)
      mean[i] = static_cast<float>(sum_[i] / static_cast<double>(bytes));
    std::ranges::fill(sum_, 0.0);
    return sink_(next_++, mean);
  }

  const std::span<const size_t> ends_, to_;
  const PromptScores::StateSink& sink_;
  size_t next_ = 0;  // the token that receives states
  std::vector<double> sum_;
};

// The text of all tokens that are not control tokens, without the space that most tokenizers put before a text.
PlainText plain_text_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  PlainText out;
  for (const TokenId token : tokens) {
    if (!tokenizer.is_control(token)) out.text += tokenizer.piece(token);
    out.ends.push_back(out.text.size());
  }
  if (!out.text.starts_with(' ')) return out;
  out.text.erase(0, 1);
  for (size_t& end : out.ends) end -= std::min<size_t>(end, 1);
  return out;
}

}  // namespace

ModelScores::ModelScores(std::shared_ptr<const LanguageModel> model, int threads)
    : model_(std::move(model)), threads_(threads) {}

Result<std::shared_ptr<const LanguageModel>> ModelScores::load(const std::string& path) const {
  if (path.empty()) return model_;
  LoadOptions load;
  load.threads = threads_;
  load.memory_name = "prompt model";
  auto loaded = model_->parts().seconds->load(*model_, path, load);
  if (!loaded.ok()) return Error{loaded.error().kind, fmt::format("prompt: model: {}", loaded.error().message)};
  if (!(*loaded)->parts().tokenizer) return Error::unsupported(fmt::format("prompt: model: {} has no tokenizer", path));
  return loaded;
}

Result<void> ModelScores::open_one(const std::string& path) {
  Opened opened;
  MILLRACE_TRY(opened.model, load(path));
  const int64_t window = std::min(kWindow, opened.model->parts().model->context());
  if (!pool_) pool_ = model_->parts().threads->get(threads_);
  MILLRACE_TRY(opened.scorer,
               Scorer::create(opened.model, {.context = window, .batch_tokens = kWindow, .pool = pool_}));
  opened_.emplace(path, std::move(opened));
  return {};
}

Result<void> ModelScores::open_embedder(const std::string& path) {
  MILLRACE_TRY(const auto model, load(path));
  MILLRACE_TRY(embedders_[path], TextEmbedder::create(model, threads_));
  return {};
}

Result<void> ModelScores::open(std::span<const std::string> models) {
  for (const std::string& path : models)
    if (!opened_.contains(path)) MILLRACE_TRY_VOID(open_one(path));
  return {};
}

Result<void> ModelScores::open(const PromptPipeline& pipeline) {
  MILLRACE_TRY_VOID(pipeline.open_files(files_));
  MILLRACE_TRY_VOID(open(pipeline.models()));
  for (const std::string& path : pipeline.embedders())
    if (!embedders_.contains(path)) MILLRACE_TRY_VOID(open_embedder(path));
  for (const std::string& path : pipeline.writers()) {
    if (writers_.contains(path)) continue;
    MILLRACE_TRY(const auto model, load(path));
    MILLRACE_TRY(writers_[path], TextWriter::create(model, threads_));
  }
  return {};
}

Error ModelScores::not_opened(const std::string& model) {
  return Error::user(fmt::format("prompt: model: {} is not one of those that the server was started with", model));
}

Result<std::string> ModelScores::answer(const std::string& model, const std::string& message, int64_t max_tokens) {
  const auto found = writers_.find(model);
  if (found == writers_.end() || !found->second) return not_opened(model);
  return found->second->answer(message, max_tokens, check_);
}

Result<std::vector<std::vector<float>>> ModelScores::embeddings(const std::string& model,
                                                                std::span<const std::vector<TokenId>> texts) {
  int64_t tokens = 0;
  for (const auto& text : texts) tokens += std::ssize(text);
  if (tokens > kMaxTokens)
    return Error::user(fmt::format("prompt: has {} tokens; at most {} can be compressed", tokens, kMaxTokens));
  if (model.empty() && own_states_) {
    MILLRACE_TRY(auto out, own_states_(texts));
    for (std::vector<float>& values : out) normalize(values);
    return out;
  }
  if (model.empty() && !embedders_.contains(model)) MILLRACE_TRY_VOID(open_embedder(model));
  const auto found = embedders_.find(model);
  if (found == embedders_.end() || !found->second) return not_opened(model);
  if (model.empty()) return found->second->of_tokens(texts);
  const Tokenizer* own = model_->parts().tokenizer.get();
  if (!own) return Error::unsupported("prompt: the model has no tokenizer, so no other model can read its prompts");
  std::vector<std::string> strings;
  for (const std::vector<TokenId>& text : texts) strings.push_back(plain_text_of(*own, text).text);
  return found->second->of_texts(strings);
}

Result<void> ModelScores::hidden_states(const std::string& model, std::span<const TokenId> tokens,
                                        const StateSink& sink) {
  if (std::ssize(tokens) > kMaxTokens)
    return Error::user(fmt::format("prompt: has {} tokens; at most {} can be compressed", tokens.size(), kMaxTokens));
  if (tokens.empty()) return {};
  if (model.empty() && own_token_states_)
    return own_token_states_(tokens, state_windows(std::ssize(tokens), std::min(kWindow, own_context_)), sink);
  if (model.empty() && !embedders_.contains(model)) MILLRACE_TRY_VOID(open_embedder(model));
  const auto found = embedders_.find(model);
  if (found == embedders_.end() || !found->second) return not_opened(model);
  if (model.empty()) return found->second->states(tokens, sink, check_);
  return states_by_text(*found->second, tokens, sink);
}

Result<void> ModelScores::states_by_text(TextEmbedder& other, std::span<const TokenId> tokens,
                                         const StateSink& sink) const {
  const Tokenizer* own = model_->parts().tokenizer.get();
  if (!own) return Error::unsupported("prompt: the model has no tokenizer, so no other model can read its prompts");
  const auto [text, ends] = plain_text_of(*own, tokens);
  const Tokenizer& tokenizer = *other.model().parts().tokenizer;
  const std::vector<TokenId> read = tokenizer.encode(text, {.add_special = true, .parse_special = false});
  const auto read_ends = token_ends(tokenizer, read, text);
  if (!read_ends)
    return Error::unsupported(
        "prompt: model: its tokenizer changes the text, so its states cannot be mapped to the prompt");
  StatesByBytes states(*read_ends, ends, sink);
  const auto add = [&](size_t token, std::span<const float> state) { return states.add(token, state); };
  MILLRACE_TRY_VOID(other.states(read, add, check_));
  return states.finish();
}

Result<std::shared_ptr<const PromptFile>> ModelScores::file(const std::string& member, const std::string& path) {
  const auto found = files_.find({member, path});
  if (found == files_.end()) return PromptScores::file(member, path);
  return found->second;
}

Result<std::vector<float>> ModelScores::self_information(const std::string& model, std::span<const TokenId> tokens) {
  if (std::ssize(tokens) > kMaxTokens)
    return Error::user(fmt::format("prompt: has {} tokens; at most {} can be compressed", tokens.size(), kMaxTokens));
  if (model.empty() && own_scores_) return by_engine(tokens);
  if (model.empty() && !opened_.contains(model)) MILLRACE_TRY_VOID(open_one(model));
  const auto found = opened_.find(model);
  if (found == opened_.end()) return not_opened(model);
  Opened& one = found->second;
  if (!model.empty()) return by_text(one, tokens);
  return score_tokens(one, tokens);
}

Result<std::vector<float>> ModelScores::score_tokens(Opened& one, std::span<const TokenId> tokens) {
  std::vector<float> out(tokens.size(), kNoScore);
  if (tokens.size() < 2) return out;
  Scorer& scorer = *one.scorer;
  const int64_t window = std::min(kWindow, one.model->parts().model->context());
  size_t next = 1;
  const auto sink = [&](std::span<const ScoredRow> rows) -> Result<void> {
    for (const ScoredRow& row : rows) {
      const std::span logits(row.logits, static_cast<size_t>(scorer.vocab()));
      out[next++] = -compute_logprobs(logits, row.target, 0).chosen.logprob;
    }
    return check_ ? check_() : Result<void>();
  };
  MILLRACE_TRY_VOID(scorer.run(tokens, document_windows(std::ssize(tokens), window), -1, sink));
  return out;
}

Result<std::vector<float>> ModelScores::by_engine(std::span<const TokenId> tokens) const {
  std::vector<float> out(tokens.size(), kNoScore);
  if (tokens.size() < 2) return out;
  const int64_t window = std::min(kWindow, own_context_);
  MILLRACE_TRY(const auto scores, own_scores_(tokens, document_windows(std::ssize(tokens), window)));
  std::ranges::copy(scores, out.begin() + 1);
  return out;
}

Result<std::vector<float>> ModelScores::by_text(Opened& other, std::span<const TokenId> tokens) {
  const Tokenizer* own = model_->parts().tokenizer.get();
  if (!own) return Error::unsupported("prompt: the model has no tokenizer, so no other model can read its prompts");
  const auto [text, ends] = plain_text_of(*own, tokens);
  const Tokenizer& tokenizer = *other.model->parts().tokenizer;
  const std::vector<TokenId> read = tokenizer.encode(text, {.add_special = true, .parse_special = false});
  const auto read_ends = token_ends(tokenizer, read, text);
  if (!read_ends)
    return Error::unsupported(
        "prompt: model: its tokenizer changes the text, so its scores cannot be mapped to the prompt");
  MILLRACE_TRY(const auto scores, score_tokens(other, read));
  return spread_over_bytes(scores, *read_ends, ends);
}

}  // namespace millrace
