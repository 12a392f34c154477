// Pattern search: which pattern each head gets in the attention pattern minference: the newest blocks (A-shape), lines
// (vertical-slash) in several divisions of vertical and slash ones, or blocks by their mean keys (block-sparse), all of
// which see about as many blocks. On a text, each of them is measured in every KV head, by the attention to all keys
// that it keeps while the model attends to all; a head gets the one that keeps most. `millrace pattern-search` prints
// the choice.
//
// MInference (Jiang et al., 2024) compares outputs at equal cost in its kernels; here the attention that is kept, at an
// equal number of blocks.
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
  int64_t blocks = 16;  // that a query sees beside the first and the newest ones

  std::string options() const;  // of the pattern, all but its heads
};

// What one pattern keeps in one head, in the mean over queries.
struct PatternGain {
  std::string head;  // as in the option `heads`
  double mass = 0;
  double keys = 0;
};

struct ChosenPatterns {
  std::vector<std::string> heads;
  double mass = 0;  // in the mean over heads
  double keys = 0;

  std::string text() const;  // as of the option `heads`
};

// That see about as many blocks.
std::vector<std::string> candidate_heads(const PatternSearchOptions& options);

// `gains`: of each head, the same patterns. Of equal ones, the first. Pure.
ChosenPatterns choose_patterns(std::span<const std::vector<PatternGain>> gains);

// The best of the choices that give every head the same pattern. Pure.
ChosenPatterns same_pattern(std::span<const std::vector<PatternGain>> gains);

// The gains of the KV heads of all layers, in order, on the text. Errors: user (a text that is too short, options),
// unsupported (layers that do not see every key), resource.
Result<std::vector<std::vector<PatternGain>>> measure_patterns(const std::shared_ptr<const LanguageModel>& model,
                                                               std::span<const TokenId> tokens,
                                                               const PatternSearchOptions& options);

}  // namespace millrace
