// Pattern search: chooses a pattern for each head in the attention pattern minference. Candidates are the newest blocks
// (A-shape), lines (vertical-slash) in several divisions of vertical and slash ones, and blocks by their mean keys
// (block-sparse); all see about the same number of blocks. On a text, each candidate is measured in every KV head while
// the model attends to all keys: by the share of that attention that it keeps. A head is assigned the candidate that
// keeps most. `millrace pattern-search` prints the choice.
//
// MInference (Jiang et al., 2024) compares outputs at equal cost in its kernels. Here the kept attention is compared at
// an equal number of blocks.
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
  int64_t blocks = 16;  // blocks that a query sees in addition to the first and the newest ones

  std::string options() const;  // options of the pattern, without its heads
};

// Attention that one pattern keeps in one head, on average over queries.
struct PatternGain {
  std::string head;  // as in the option `heads`
  double mass = 0;
  double keys = 0;
};

struct ChosenPatterns {
  std::vector<std::string> heads;
  double mass = 0;  // on average over heads
  double keys = 0;

  std::string text() const;  // as the option `heads`
};

// Candidates that see about the same number of blocks.
std::vector<std::string> candidate_heads(const PatternSearchOptions& options);

// `gains`: for each head, the same patterns. Among equal ones, the first is chosen. Pure.
ChosenPatterns choose_patterns(std::span<const std::vector<PatternGain>> gains);

// The best of the choices that give every head the same pattern. Pure.
ChosenPatterns same_pattern(std::span<const std::vector<PatternGain>> gains);

// The gains of the KV heads of all layers, in order, on the text. Errors: user (a text that is too short, options),
// unsupported (layers that do not see every key), resource.
Result<std::vector<std::vector<PatternGain>>> measure_patterns(const std::shared_ptr<const LanguageModel>& model,
                                                               std::span<const TokenId> tokens,
                                                               const PatternSearchOptions& options);

}  // namespace millrace
