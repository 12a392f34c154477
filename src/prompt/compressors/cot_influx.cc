// CoT-Influx (Huang et al., 2023, Fewer is More: Boosting LLM Reasoning with Reinforced Context Pruning): examples with
// their reasoning are pruned from coarse to fine. Whole shots are chosen first, `coarse` times as many tokens as may
// remain; then tokens are dropped from the chosen shots. The question remains whole.
//
//   shots       A 0.3   B 1.2   C 0.9   question         value of each shot
//   coarse              B       C       question         the highest first, until coarse * keep tokens
//   fine                b       c       question         the most valuable words or tokens, in order
//
// The paper trains both pruners. `policy` names a file with two networks (prompt/keep_policy.h): "shot" reads the
// embedding of a shot, "token" the final hidden state of a token. Without a file, values are heuristic: a shot is worth
// by how much it lowers the mean information of the question, in nats a token; a word is worth the mean information of
// its tokens, and words with digits or operators come before all others, because reasoning breaks without them.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "prompt/compressors/factories.h"
#include "prompt/keep_policy.h"
#include "prompt/text_similarity.h"
#include "prompt/token_pruning.h"

namespace millrace {
namespace {

constexpr const char* kShotNetwork = "shot";
constexpr const char* kTokenNetwork = "token";

// Words or tokens, and what each is worth.
struct ValuedUnits {
  std::vector<TokenRange> units;
  std::vector<std::pair<bool, double>> values;  // true: a calculation needs it
};

// Returns true for words with a digit or an operator. A minus counts only in words without letters: others are hyphens.
bool has_calculation(const PromptView& prompt, TokenRange unit) {
  bool minus = false, letters = false;
  for (int64_t i = unit.first; i < unit.first + unit.count; ++i) {
    for (const char c : prompt.texts[static_cast<size_t>(i)]) {
      if ((c >= '0' && c <= '9') || std::string_view("+*/=<>%^").find(c) != std::string_view::npos) return true;
      minus = minus || c == '-';
      letters = letters || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    }
  }
  return minus && !letters;
}

std::vector<TokenId> tokens_of(const PromptView& prompt, TokenRange range) {
  const auto own = prompt.tokens.subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.count));
  return {own.begin(), own.end()};
}

class CotInflux final : public CompressorWithOptions {
 public:
  CotInflux(CompressionOptions options, double coarse, std::string policy)
      : CompressorWithOptions(std::move(options)), coarse_(coarse), policy_(std::move(policy)) {}

  PromptNeeds needs() const override { return policy_.empty() ? kNeedsSelfInformation : kNeedsEmbeddings; }
  std::string file() const override { return policy_; }
  Result<std::shared_ptr<const PromptFile>> open_file() const override {
    MILLRACE_TRY(auto opened, PolicyFile::open(policy_, {kShotNetwork, kTokenNetwork}));
    return std::shared_ptr<const PromptFile>(std::move(opened));
  }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    if (task.keep == task.droppable) return PromptRest{remaining(std::vector<char>(prompt.tokens.size()))};
    std::shared_ptr<const PolicyFile> policy;
    if (!policy_.empty()) {
      MILLRACE_TRY(const auto opened, scores.file("cot_influx", policy_));
      policy = std::static_pointer_cast<const PolicyFile>(opened);
    }
    MILLRACE_TRY(std::vector<char> dropped, without_shots(prompt, task, policy.get(), scores));
    MILLRACE_TRY_VOID(drop_tokens(prompt, task, policy.get(), scores, dropped));
    return PromptRest{remaining(dropped)};
  }

 private:
  // Marks the tokens of the shots that are not chosen.
  Result<std::vector<char>> without_shots(const PromptView& prompt, const CompressionTask& task,
                                          const PolicyFile* policy, PromptScores& scores) const {
    std::vector<char> out(prompt.tokens.size());
    const auto most = static_cast<int64_t>(std::ceil(coarse_ * static_cast<double>(task.keep)));
    if (task.droppable <= most || task.parts.size() < 2) return out;
    std::vector<double> values;
    if (policy) {
      MILLRACE_TRY(values, probable_shots(prompt, task, *policy, scores));
    } else {
      MILLRACE_TRY(values, helpful_shots(prompt, task, scores));
    }
    std::vector<size_t> order(task.parts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(-values[i], i); });
    int64_t tokens = 0;
    for (const size_t i : order) {
      const TokenRange& part = task.parts[i];
      if (tokens >= most) std::fill_n(out.begin() + part.first, part.count, char{1});
      tokens += part.count;
    }
    return out;
  }

  // By how much each shot lowers the mean information of the question; without a question, the information of the shot.
  Result<std::vector<double>> helpful_shots(const PromptView& prompt, const CompressionTask& task,
                                            PromptScores& scores) const {
    const std::vector<TokenId> lead = leading_tokens(prompt), question = tokens_of(prompt, task.question);
    std::vector<double> out;
    std::vector<TokenId> alone = lead;
    alone.insert(alone.end(), question.begin(), question.end());
    double unaided = 0;
    if (!question.empty()) {
      MILLRACE_TRY(unaided, mean_information(options_.model, alone, std::ssize(question), scores));
    }
    for (const TokenRange& part : task.parts) {
      std::vector<TokenId> tokens = lead;
      const std::vector<TokenId> own = tokens_of(prompt, part);
      tokens.insert(tokens.end(), own.begin(), own.end());
      tokens.insert(tokens.end(), question.begin(), question.end());
      const int64_t scored = question.empty() ? part.count : std::ssize(question);
      MILLRACE_TRY(const double information, mean_information(options_.model, tokens, scored, scores));
      out.push_back(question.empty() ? information : unaided - information);
    }
    return out;
  }

  Result<std::vector<double>> probable_shots(const PromptView& prompt, const CompressionTask& task,
                                             const PolicyFile& policy, PromptScores& scores) const {
    MILLRACE_TRY(const auto vectors, embed_ranges(prompt, task.parts, options_.model, false, scores));
    std::vector<double> out;
    for (const std::vector<float>& vector : vectors) {
      MILLRACE_TRY_VOID(policy.check_width(kShotNetwork, vector.size()));
      out.push_back(policy.network(kShotNetwork).keep_probability(vector));
    }
    return out;
  }

  // Also marks tokens of the chosen shots, until the rest fits.
  Result<void> drop_tokens(const PromptView& prompt, const CompressionTask& task, const PolicyFile* policy,
                           PromptScores& scores, std::vector<char>& dropped) const {
    std::vector<size_t> rest;  // the prompt without the other shots, by index
    std::vector<TokenId> tokens;
    int64_t left = 0;
    for (size_t i = 0; i < dropped.size(); ++i) {
      if (dropped[i]) continue;
      rest.push_back(i);
      tokens.push_back(prompt.tokens[i]);
      left += !task.fixed[i];
    }
    if (left <= task.keep) return {};
    std::vector<double> values(prompt.tokens.size());
    if (policy) {
      const auto read = [&](size_t token, std::span<const float> state) -> Result<void> {
        MILLRACE_TRY_VOID(policy->check_width(kTokenNetwork, state.size()));
        if (!task.fixed[rest[token]]) values[rest[token]] = policy->network(kTokenNetwork).keep_probability(state);
        return {};
      };
      MILLRACE_TRY_VOID(scores.hidden_states(options_.model, tokens, read));
    } else {
      MILLRACE_TRY(const auto information, scores.self_information(options_.model, tokens));
      for (size_t i = 0; i < rest.size(); ++i)
        values[rest[i]] = std::isfinite(information[i]) ? static_cast<double>(information[i]) : 0;
    }
    drop_cheapest(task, units_of(prompt, task, dropped, values), left, dropped);
    return {};
  }

  // Words for the heuristic, tokens for a policy, of what is neither fixed nor dropped.
  ValuedUnits units_of(const PromptView& prompt, const CompressionTask& task, const std::vector<char>& dropped,
                       const std::vector<double>& values) const {
    std::vector<char> others(task.fixed.begin(), task.fixed.end());
    for (size_t i = 0; i < others.size(); ++i) others[i] = others[i] || dropped[i];
    ValuedUnits out;
    out.units = split_units(prompt.texts, others, policy_.empty() ? TextUnit::word : TextUnit::token);
    for (const TokenRange& unit : out.units) {
      double sum = 0;
      for (int64_t i = unit.first; i < unit.first + unit.count; ++i) sum += values[static_cast<size_t>(i)];
      out.values.emplace_back(policy_.empty() && has_calculation(prompt, unit), sum / static_cast<double>(unit.count));
    }
    return out;
  }

  // Marks units from the least valuable one on, until at most task.keep of the `left` tokens remain.
  static void drop_cheapest(const CompressionTask& task, const ValuedUnits& valued, int64_t left,
                            std::vector<char>& dropped) {
    std::vector<size_t> order(valued.units.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(valued.values[i], i); });
    for (size_t i = 0; i < order.size() && left > task.keep; ++i) {
      const TokenRange& unit = valued.units[order[i]];
      const bool last = i + 1 == order.size();  // a prompt is never empty: the last unit is cut to what may remain
      const int64_t count = last ? std::min(unit.count, left - task.keep) : unit.count;
      std::fill_n(dropped.begin() + unit.first + (unit.count - count), count, char{1});
      left -= count;
    }
  }

  const double coarse_;
  const std::string policy_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_cot_influx(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  return std::unique_ptr<PromptCompressor>(
      std::make_unique<CotInflux>(std::move(shared), options.number("coarse"), options.text("policy")));
}

}  // namespace millrace
