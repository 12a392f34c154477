// STDC, syntax-guided compression (Yin et al., 2023, Did You Read the Instructions? Rethinking the Effectiveness of
// Task Definitions in Instruction Learning): constituents of a parse whose removal costs the least are dropped, not
// single tokens. The paper removes a constituent if the answers to a task's examples do not become worse. Here a
// constituent costs, a token, its own self-information, or by how much the question becomes less likely without it
// (`cost`).
//
//   The man   who lives here   quickly   bought   an old   car    in Rome .
//                2.1             1.4                  4.0            3.2        adverb first, then the clause, ...
//
// Modifiers and whole sentences are dropped, the cheapest first, until the budget holds. If a sentence is larger than
// what still must go, it is cut: its modifiers first, then its core from the end, the subject last.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "prompt/compressors/factories.h"
#include "prompt/prompt_constituents.h"
#include "prompt/token_pruning.h"

namespace millrace {
namespace {

constexpr size_t kMaxPasses = 1024;  // of cost=question

// Something that is dropped as a whole.
struct Candidate {
  size_t sentence = 0;
  bool whole = false;  // the sentence itself
  TokenRange tokens;
  double cost = 0;  // of a token
};

// The tokens that were dropped so far.
class Dropping {
 public:
  Dropping(const CompressionTask& task, std::vector<char> dropped)
      : fixed_(task.fixed), keep_(task.keep), dropped_(std::move(dropped)) {
    for (size_t i = 0; i < dropped_.size(); ++i) left_ += !fixed_[i] && !dropped_[i];
  }

  int64_t excess() const { return left_ - keep_; }
  int64_t remains(TokenRange range) const {
    int64_t out = 0;
    for (auto i = static_cast<size_t>(range.first); i < static_cast<size_t>(range.first + range.count); ++i)
      out += !fixed_[i] && !dropped_[i];
    return out;
  }
  void drop(TokenRange range) {
    for (auto i = static_cast<size_t>(range.first); i < static_cast<size_t>(range.first + range.count); ++i) {
      if (fixed_[i] || dropped_[i]) continue;
      dropped_[i] = 1;
      --left_;
    }
  }
  // The result. A prompt is never empty: if nothing remains, its first tokens do.
  std::vector<char> take() {
    if (std::ranges::count(dropped_, char{0}) == 0) std::fill_n(dropped_.begin(), keep_, char{0});
    return std::move(dropped_);
  }

 private:
  const std::vector<char>& fixed_;
  const int64_t keep_;
  std::vector<char> dropped_;
  int64_t left_ = 0;
};

// Drops modifiers of the sentence, in order, and then its core from the end.
void cut_sentence(const PromptSentence& sentence, size_t index, std::span<const Candidate> in_order,
                  Dropping& dropping) {
  for (const Candidate& one : in_order)
    if (!one.whole && one.sentence == index && dropping.excess() > 0) dropping.drop(one.tokens);
  const auto& core = sentence.constituents.core;
  for (auto chunk = core.rbegin(); chunk != core.rend() && dropping.excess() > 0; ++chunk) dropping.drop(*chunk);
  if (dropping.excess() > 0) dropping.drop(sentence.tokens);  // tokens in no constituent
}

class Stdc final : public CompressorWithOptions {
 public:
  Stdc(CompressionOptions options, std::string parse, bool by_question)
      : CompressorWithOptions(std::move(options)), parse_(std::move(parse)), by_question_(by_question) {}

  PromptNeeds needs() const override { return kNeedsSelfInformation; }
  std::string file() const override { return parse_; }
  Result<std::shared_ptr<const PromptFile>> open_file() const override {
    MILLRACE_TRY(auto opened, ParseFile::open(parse_));
    return std::shared_ptr<const PromptFile>(std::move(opened));
  }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    if (task.keep == task.droppable) return PromptRest{remaining(std::vector<char>(prompt.tokens.size()))};
    std::shared_ptr<const ParseFile> parses;
    if (!parse_.empty()) {
      MILLRACE_TRY(const auto opened, scores.file("stdc", parse_));
      parses = std::static_pointer_cast<const ParseFile>(opened);
    }
    PromptSyntax syntax = parse_prompt(prompt, task, parses.get());
    MILLRACE_TRY(const auto candidates, in_order(prompt, task, syntax, scores));
    Dropping dropping(task, std::move(syntax.markup));
    for (const Candidate& one : candidates) {
      if (dropping.excess() <= 0) break;
      if (one.whole && dropping.remains(one.tokens) > dropping.excess())
        cut_sentence(syntax.sentences[one.sentence], one.sentence, candidates, dropping);
      else
        dropping.drop(one.tokens);
    }
    return PromptRest{remaining(dropping.take())};
  }

 private:
  // All candidates, the cheapest first.
  Result<std::vector<Candidate>> in_order(const PromptView& prompt, const CompressionTask& task,
                                          const PromptSyntax& syntax, PromptScores& scores) const {
    std::vector<Candidate> out;
    for (size_t i = 0; i < syntax.sentences.size(); ++i) {
      const PromptSentence& sentence = syntax.sentences[i];
      for (const TokenRange& modifier : sentence.constituents.modifiers) out.push_back({i, false, modifier});
      out.push_back({i, true, sentence.tokens});
    }
    if (by_question_ && task.question.count > 0) {
      MILLRACE_TRY_VOID(cost_by_question(prompt, task, syntax, scores, out));
    } else {
      MILLRACE_TRY_VOID(cost_by_information(prompt, syntax, scores, out));
    }
    std::ranges::sort(out, {}, [](const Candidate& one) {
      return std::tuple(one.cost, one.tokens.first, one.tokens.count, one.whole);
    });
    return out;
  }

  Result<void> cost_by_information(const PromptView& prompt, const PromptSyntax& syntax, PromptScores& scores,
                                   std::vector<Candidate>& candidates) const {
    MILLRACE_TRY(const auto information, scores.self_information(options_.model, prompt.tokens));
    for (Candidate& one : candidates) {
      double sum = 0;
      int64_t tokens = 0;
      for (auto i = static_cast<size_t>(one.tokens.first); i < static_cast<size_t>(one.tokens.first + one.tokens.count);
           ++i) {
        if (syntax.markup[i] || !std::isfinite(information[i])) continue;
        sum += static_cast<double>(information[i]);
        ++tokens;
      }
      one.cost = tokens > 0 ? sum / static_cast<double>(tokens) : 0;
    }
    return {};
  }

  // By how much the mean information of the question rises without each candidate.
  Result<void> cost_by_question(const PromptView& prompt, const CompressionTask& task, const PromptSyntax& syntax,
                                PromptScores& scores, std::vector<Candidate>& candidates) const {
    if (candidates.size() > kMaxPasses)
      return Error::user(fmt::format(
          "prompt stdc: cost: the prompt has {} constituents; at most {} are removed to see what each costs. Choose "
          "cost=information",
          candidates.size(), kMaxPasses));
    const auto information_without = [&](TokenRange removed) {
      std::vector<TokenId> tokens;
      for (int64_t i = 0; i < task.question.first + task.question.count; ++i) {
        const bool out = i >= removed.first && i < removed.first + removed.count;
        if (!out && !syntax.markup[static_cast<size_t>(i)]) tokens.push_back(prompt.tokens[static_cast<size_t>(i)]);
      }
      return mean_information(options_.model, tokens, task.question.count, scores);
    };
    MILLRACE_TRY(const double whole, information_without({}));
    for (Candidate& one : candidates) {
      MILLRACE_TRY(const double without, information_without(one.tokens));
      one.cost = (without - whole) / static_cast<double>(one.tokens.count);
    }
    return {};
  }

  const std::string parse_;
  const bool by_question_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_stdc(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  const std::string& cost = options.text("cost");
  if (cost != "information" && cost != "question")
    return Error::user(fmt::format("cost: expected information or question, got '{}'", cost));
  return std::unique_ptr<PromptCompressor>(
      std::make_unique<Stdc>(std::move(shared), options.text("parse"), cost == "question"));
}

}  // namespace millrace
