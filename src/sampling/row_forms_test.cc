// Every step has the same effect on both forms of a row: a list, and a dense row in which all other tokens are -inf.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "sampling/step.h"
#include "text/grammar/constraint.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();
constexpr int32_t kVocab = 6000;  // too many for a dense row to become a list

// Bytes, one end token, and words of letters.
std::vector<std::string> row_vocabulary() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  pieces.push_back("");
  while (pieces.size() < kVocab) pieces.push_back("w" + std::to_string(pieces.size()));
  return pieces;
}

CompiledGrammar compiled(const char* regex) {
  static GrammarCache cache{row_vocabulary};
  Constraint constraint;
  constraint.kind = Constraint::Kind::regex;
  constraint.text = regex;
  return cache.get(constraint).value();
}

std::shared_ptr<const Tokenizer> byte_tokenizer() {
  TokenizerSpec spec;
  spec.kind = "rwkv";
  for (const std::string& piece : row_vocabulary()) spec.tokens.push_back(piece.empty() ? "<end>" : piece);
  auto made = Tokenizer::create(std::move(spec));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::shared_ptr<const Tokenizer>(std::move(*made)) : nullptr;
}

SamplerSetup neutral() {
  SamplerSetup setup;
  setup.vocab_size = kVocab;
  setup.options.top_k = 0;
  setup.options.top_p = 1;
  setup.options.min_p = 0;
  setup.options.temperature = 1;
  setup.end_of_generation = {256};
  return setup;
}

// Options that enable each step.
std::multimap<std::string, std::function<void(SamplerSetup&)>> switches() {
  static const std::shared_ptr<const Tokenizer> tokenizer = byte_tokenizer();
  return {
      {"penalties", [](SamplerSetup& s) { s.options.repetition_penalty = 1.5, s.options.presence_penalty = 1; }},
      {"dry", [](SamplerSetup& s) { s.options.dry_multiplier = 2; }},
      {"logit_bias",
       [](SamplerSetup& s) {
         s.options.logit_bias = {{40, 5.0}, {41, -5.0}, {50, kRemoved}, {300, 3.0}};
       }},
      {"banned_tokens",
       [](SamplerSetup& s) {
         s.options.banned_tokens = {40, 45, 300};
       }},
      {"bad_words",
       [](SamplerSetup& s) {
         s.bad_words = {{40}, {43, 44}, {300}};
       }},
      {"end_of_generation",
       [](SamplerSetup& s) {
         s.ignore_eos = true, s.end_of_generation = {256, 41};
       }},
      {"allowed_tokens", [](SamplerSetup& s) { s.options.allowed_tokens = {40, 41, 42, 300, 301, 5999}; }},
      {"thinking_budget",
       [](SamplerSetup& s) {
         s.tokenizer = tokenizer.get(), s.thinking = {0, "<", "*", true};
       }},
      {"constraint", [](SamplerSetup& s) { s.grammar = compiled("[()*]x"); }},  // few tokens are kept
      {"constraint", [](SamplerSetup& s) { s.grammar = compiled("[^(5]*"); }},  // most are
      {"constraint", [](SamplerSetup& s) { s.grammar = compiled("Q"); }},       // none of those in the list
      {"greedy", [](SamplerSetup& s) { s.options.temperature = 0; }},
      {"top_n_sigma", [](SamplerSetup& s) { s.options.top_n_sigma = 0.5; }},
      {"top_k", [](SamplerSetup& s) { s.options.top_k = 3; }},
      {"top_k", [](SamplerSetup& s) { s.options.top_k = 50; }},
      {"typical_p", [](SamplerSetup& s) { s.options.typical_p = 0.5; }},
      {"top_p", [](SamplerSetup& s) { s.options.top_p = 0.5; }},
      {"min_p", [](SamplerSetup& s) { s.options.min_p = 0.3; }},
      {"xtc", [](SamplerSetup& s) { s.options.xtc_probability = 1, s.options.xtc_threshold = 0.05; }},
      {"temperature", [](SamplerSetup& s) { s.options.temperature = 0.5; }},
      {"dynamic_temperature", [](SamplerSetup& s) { s.options.dynamic_temperature_range = 0.5; }},
      {"mirostat", [](SamplerSetup& s) { s.options.mirostat = 2, s.options.mirostat_tau = 1; }},
  };
}

using Left = std::map<TokenId, float>;  // remaining logits; 0 for a single candidate, whose logit does not matter

Left left_by(SamplerStep& step, SamplingRow& row) {
  for (TokenId token : {43, 44, 40, 43, 44, 40, 43}) step.accept(token);
  step.apply(row);
  Left out;
  for (const Candidate& candidate : row.candidates())
    out[candidate.token] = row.candidates().size() == 1 ? 0 : candidate.logit;
  return out;
}

TEST(RowForms, StepsTreatListsLikeMaskedDenseRows) {
  const auto on = switches();
  std::mt19937 draw(7);
  std::set<std::string> changed;
  for (const auto& entry : samplers().entries()) {
    const std::string name(entry.info.name);
    ASSERT_GT(on.count(name), 0u) << name << ": add the options that enable it above";
    const auto [first, last] = on.equal_range(name);
    for (auto use = first; use != last; ++use) {
      SCOPED_TRACE(name);
      SamplerSetup setup = neutral();
      use->second(setup);
      for (int round = 0; round < 20; ++round) {
        std::vector<float> logits(kVocab);
        for (float& logit : logits) logit = static_cast<float>(draw() % 1000) / 100;
        std::set<TokenId> listed = {41, 42};
        for (int i = 0; i < round; ++i) listed.insert(static_cast<TokenId>(draw() % (i % 2 == 0 ? 60 : kVocab)));
        const std::vector<TokenId> tokens(listed.begin(), listed.end());
        std::vector<float> masked(kVocab, kRemoved);
        for (TokenId token : tokens) masked[static_cast<size_t>(token)] = logits[static_cast<size_t>(token)];

        const auto list_step = entry.member(setup), dense_step = entry.member(setup);
        ASSERT_TRUE(list_step && dense_step);
        SamplingRow list, dense;
        list.begin(logits, 1, 5);
        list.keep_tokens(tokens);
        Left before;
        for (const Candidate& candidate : list.candidates()) before[candidate.token] = candidate.logit;
        dense.begin(masked, 1, 5);
        const Left left = left_by(*list_step, list);
        EXPECT_EQ(left, left_by(*dense_step, dense)) << round;
        if (left != before) changed.insert(name);
        // ... and on a sorted list.
        std::vector<float> again(kVocab, kRemoved);
        for (TokenId token : tokens) again[static_cast<size_t>(token)] = logits[static_cast<size_t>(token)];
        SamplingRow sorted;
        sorted.begin(again, 1, 5);
        sorted.keep_best(tokens.size());
        const auto sorted_step = entry.member(setup);
        const Left sorted_left = left_by(*sorted_step, sorted);
        ASSERT_EQ(sorted_left.size(), left.size()) << round;
        for (const auto& [token, logit] : left) EXPECT_NEAR(sorted_left.at(token), logit, 1e-4) << round;
      }
    }
    EXPECT_TRUE(changed.contains(name)) << name << ": had no effect in any round, so nothing was tested";
  }
}

TEST(RowForms, ForcingOverridesBansButNotTheList) {
  std::vector<float> logits = {1, kRemoved, 3};
  SamplingRow row;
  row.begin(logits, 0, 0);
  row.force(1);
  ASSERT_EQ(row.candidates().size(), 1u);
  EXPECT_EQ(row.candidates().front().token, 1);
  const TokenId listed[] = {0, 2};
  for (TokenId token : {0, 1, 2, 7, -1}) {
    row.begin(logits, 0, 0);
    row.keep_tokens(listed);
    row.force(token);
    EXPECT_EQ(row.candidates().size(), token == 0 || token == 2 ? 1u : 0u) << token;
  }
}

// An edit of a list in any state keeps sorted() true.
TEST(RowForms, EditsOfASortedListKeepItsOrderKnown) {
  std::vector<float> logits = {1, 5, 3, 4, 2};
  SamplingRow row;
  row.begin(logits, 0, 0);
  row.keep_best(4);
  row.edit(4, [](float) { return 9.0f; });
  EXPECT_EQ(row.max_logit(), 9.0f);
  row.edit(1, [](float) { return kRemoved; });
  row.edit(0, [](float) { return 100.0f; });  // no longer a candidate
  EXPECT_EQ(row.candidates().size(), 3u);
  row.keep_argmax();
  EXPECT_EQ(row.candidates().front().token, 4);
}

}  // namespace
}  // namespace millrace
