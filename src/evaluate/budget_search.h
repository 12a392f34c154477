// Budget search: divides a total of kept tokens among the layers, or the KV heads of all layers, for the token evictor
// scissorhands (Liu et al., 2023, Scissorhands). A token is important to a query that pays it at least an even share of
// its attention. The persistence of importance is measured layer by layer on the windows of a text: how well the tokens
// important to the first half of the queries predict those important to the second half. It falls in the later layers
// of large models. Layers with low persistence need more tokens to keep the same share of the later important ones, and
// are assigned more.
//
//   window   [ tokens that may be kept, and first queries | second queries ]
//
// The paper gives later layers larger budgets. Here every token is assigned to the layer that so far keeps the smallest
// part of what the second half finds important.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "run/language_model.h"

namespace millrace {

struct BudgetSearchOptions {
  int threads = 0;        // 0: all cores
  int64_t context = 512;  // tokens of the windows that the text is cut into
  double keep = 0.25;     // part of the tokens of the first half, on average over layers
  int64_t recent = 10;    // as in scissorhands
  int64_t history = 400;
  std::string kv_format = "f16";
  bool heads = false;  // every KV head counts as a layer
};

// Measurements of a layer on all windows of a text.
struct LayerPersistence {
  // By the paper's definition, for each head: `important`: tokens of the first half that are important to some query of
  // the second half. `persistent`: those of them that were important to some query of the first half.
  int64_t important = 0, persistent = 0;
  // How often the second half's queries, of all heads, find a kept token important. Entry `index`: kept are the newest
  // tokens, and the `index` older ones that the first half found important most often. The last entry: all tokens are
  // kept.
  std::vector<int64_t> kept;

  double ratio() const;
  double kept_share(int64_t older) const;  // 1 where nothing is important
};

// Number of older tokens that each layer keeps: `average` on average. No other choice has a larger smallest
// kept_share(). Pure.
std::vector<int64_t> divide_budget(std::span<const LayerPersistence> layers, int64_t average);

struct FoundBudgets {
  std::vector<LayerPersistence> layers;  // or KV heads, layer by layer
  int64_t average = 0;                   // older tokens that are kept
  std::vector<int64_t> older;            // older tokens of each of them

  std::string text() const;  // as scissorhands' option `layers` or `heads`
};

// Errors: user (a text that is too short, options), unsupported (layers that do not see every key), resource.
Result<FoundBudgets> search_budgets(const std::shared_ptr<const LanguageModel>& model, std::span<const TokenId> tokens,
                                    const BudgetSearchOptions& options);

}  // namespace millrace
