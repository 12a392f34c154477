// Budget search: how a total of kept tokens is divided among the layers, or the KV heads of all layers, for the token
// evictor scissorhands (Liu et al., 2023, Scissorhands). A token is important to a query that pays it at least an even
// share of its attention. On the windows of a text it is measured, layer by layer, how well what was important to the
// first half of the queries tells what is important to the second half: the persistence of importance, which falls in
// the later layers of large models. Layers where it is low need more tokens to keep as much of what will be important,
// and get them.
//
//   window   [ tokens that may be kept, and first queries | second queries ]
//
// The paper gives later layers larger budgets. Here every token goes to the layer that keeps the smallest part so far
// of what the second half finds important, whichever that is.
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
  double keep = 0.25;     // of the tokens of the first half, on average over layers
  int64_t recent = 10;    // as of scissorhands
  int64_t history = 400;
  std::string kv_format = "f16";
  bool heads = false;  // every KV head counts as a layer
};

// What a layer shows on all windows of a text.
struct LayerPersistence {
  // By the paper's definition, of each head: tokens of the first half that are important to some query of the second
  // half, and those of them that were important to some query of the first half.
  int64_t important = 0, persistent = 0;
  // How often the second half's queries, of all heads, find a token important that is kept if the newest tokens and
  // `index` older ones are, those that the first half found important most often. The last one: all are kept.
  std::vector<int64_t> kept;

  double ratio() const;
  double kept_share(int64_t older) const;  // 1 where nothing is important
};

// Of each layer, older tokens that are kept: `average` on average. No other choice has a larger least kept_share().
// Pure.
std::vector<int64_t> divide_budget(std::span<const LayerPersistence> layers, int64_t average);

struct FoundBudgets {
  std::vector<LayerPersistence> layers;  // or KV heads, layer by layer
  int64_t average = 0;                   // older tokens that are kept
  std::vector<int64_t> older;            // of each of them

  std::string text() const;  // as of scissorhands' option `layers` or `heads`
};

// Errors: user (a text that is too short, options), unsupported (layers that do not see every key), resource.
Result<FoundBudgets> search_budgets(const std::shared_ptr<const LanguageModel>& model, std::span<const TokenId> tokens,
                                    const BudgetSearchOptions& options);

}  // namespace millrace
