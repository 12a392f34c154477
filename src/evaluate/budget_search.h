// Budget search: divides a total number of kept tokens among the layers, or the KV heads of all layers, for the token
// evictor scissorhands (Liu et al., 2023, Scissorhands). A token is important to a query if it receives at least an
// even share of the query's attention. On the windows of a text, the persistence of importance is measured in each
// layer: how well the tokens important to the first half of the queries predict the tokens important to the second
// half. In large models, persistence is lower in later layers. A layer with low persistence needs more tokens to keep
// the same share of important tokens, and is assigned more.
//
//   window   [ tokens that may be kept, and first queries | second queries ]
//
// The paper assigns larger budgets to later layers. Here, one token after the other is assigned to the layer that so
// far keeps the smallest share of the tokens important to the second half.
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
  double keep = 0.25;     // fraction of the tokens of the first half to keep, on average over layers
  int64_t recent = 10;    // as in scissorhands
  int64_t history = 400;
  std::string kv_format = "f16";
  bool heads = false;  // every KV head counts as a layer
};

// Measurements of a layer on all windows of a text.
struct LayerPersistence {
  // As defined by the paper, summed over heads. `important`: tokens of the first half that are important to some query
  // of the second half. `persistent`: those that are also important to some query of the first half.
  int64_t important = 0, persistent = 0;

  // kept[n]: number of times that a kept token is important to a query of the second half, over all heads, if the
  // newest tokens and n older tokens are kept. The n tokens are those important to most queries of the first half. In
  // the last entry, all tokens are kept.
  std::vector<int64_t> kept;

  double ratio() const;
  double kept_share(int64_t older) const;  // kept[older] / kept.back(); 1 if no token is important
};

// Returns the number of older tokens that each layer keeps, `average` on average. The result maximizes the smallest
// kept_share() of the layers. Pure.
std::vector<int64_t> divide_budget(std::span<const LayerPersistence> layers, int64_t average);

struct FoundBudgets {
  std::vector<LayerPersistence> layers;  // or KV heads, layer by layer
  int64_t average = 0;                   // older tokens that a layer keeps on average
  std::vector<int64_t> older;            // older tokens that each entry of `layers` keeps

  std::string text() const;  // value of scissorhands' option `layers` or `heads`
};

// Errors: user (the text is too short, invalid options), unsupported (some layers do not see every key), resource.
Result<FoundBudgets> search_budgets(const std::shared_ptr<const LanguageModel>& model, std::span<const TokenId> tokens,
                                    const BudgetSearchOptions& options);

}  // namespace millrace
