// Pattern search: chooses a pattern for each head of the attention pattern minference. Candidates are the newest blocks
// (A-shape), lines (vertical-slash) with several ratios of vertical to slash lines, and blocks selected by their mean
// keys (block-sparse). All candidates see about the same number of blocks. While the model reads a text with full
// attention, the share of the attention that each candidate would keep is measured in every KV head. Each head is
// assigned the candidate that keeps most. `millrace pattern-search` prints the choice.
//
// MInference (Jiang et al., 2024) compares outputs at equal cost of its kernels. This search compares the kept
// attention at an equal number of blocks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "run/language_model.h"

namespace millrace {

struct PatternSearchOptions {
  int threads = 0;         // 0: all cores
  int64_t context = 1024;  // tokens of the windows that the text is cut into
  int64_t block = 64;
  int64_t sinks = 1;
  int64_t window = 1;
  int64_t last = 8;
  int64_t blocks = 16;  // blocks that a query sees in addition to the first and the newest blocks

  std::string options() const;  // options of the pattern minference, without `heads`
};

// Attention that one pattern keeps in one head, on average over queries.
struct PatternGain {
  std::string head;  // the pattern, as written in the option `heads`
  double mass = 0;
  double keys = 0;
};

struct ChosenPatterns {
  std::vector<std::string> heads;
  double mass = 0;  // on average over heads
  double keys = 0;

  std::string text() const;  // value of the option `heads`
};

// Returns the candidates; all see about the same number of blocks.
std::vector<std::string> candidate_heads(const PatternSearchOptions& options);

// Chooses for each head the pattern that keeps most attention; the first one on ties. `gains`: for each head, the gains
// of all patterns, in the same order. Pure.
ChosenPatterns choose_patterns(std::span<const std::vector<PatternGain>> gains);

// Returns the best choice in which all heads have the same pattern. Pure.
ChosenPatterns same_pattern(std::span<const std::vector<PatternGain>> gains);

// Measures the gains on the text and returns them for the KV heads of all layers, in order. Errors: user (the text is
// too short, invalid options), unsupported (some layers do not see every key), resource.
Result<std::vector<std::vector<PatternGain>>> measure_patterns(const std::shared_ptr<const LanguageModel>& model,
                                                               std::span<const TokenId> tokens,
                                                               const PatternSearchOptions& options);

}  // namespace millrace
