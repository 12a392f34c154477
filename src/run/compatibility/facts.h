// Facts: what the members of an engine, its model and a request are, as far as it decides what each can be combined
// with. Everything that takes part states its facts (add_*() in collect.h); rules.h says which facts exclude each
// other. A new member states facts and needs no check of its own. Plain data; not thread-safe while facts are added.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

// Identified by its address: each one is a constant of the namespace facts.
struct Fact {
  const char* family;  // the family of the members that state it
  const char* text;    // "drafts trees"
};

// Which facts hold, and who stated each one, as messages name it: "drafter ngram", "KV format kivi:bits=2".
class Facts {
 public:
  void add(const Fact& fact, std::string who) {
    if (!has(fact)) stated_.emplace_back(&fact, std::move(who));
  }
  void add_if(bool holds, const Fact& fact, const std::string& who) {
    if (holds) add(fact, who);
  }
  bool has(const Fact& fact) const { return who(fact) != nullptr; }
  // Returns who stated the fact first; null if nobody did.
  const std::string* who(const Fact& fact) const {
    const auto found = std::ranges::find(stated_, &fact, [](const auto& one) { return one.first; });
    return found == stated_.end() ? nullptr : &found->second;
  }
  const std::vector<std::pair<const Fact*, std::string>>& stated() const { return stated_; }

 private:
  std::vector<std::pair<const Fact*, std::string>> stated_;
};

namespace facts {

inline constexpr Fact kDrafts{"drafter", "drafts tokens"};
inline constexpr Fact kDraftsTrees{"drafter", "drafts trees of tokens"};
inline constexpr Fact kDraftModel{"drafter", "runs a model of its own"};
inline constexpr Fact kReadsHiddenStates{"drafter", "drafts from the model's hidden states"};
inline constexpr Fact kSkipsLayers{"drafter", "runs the model without some of its layers"};
inline constexpr Fact kDrafterLayers{"drafter", "stores keys or states of its own in the engine's blocks"};
inline constexpr Fact kHiddenRows{"drafter", "stores hidden states as rows of the engine's blocks"};
inline constexpr Fact kDraftWindows{"drafter", "its model has layers that see a window"};
inline constexpr Fact kDraftHeads{"drafter", "the heads of its model do not fill blocks of values"};

inline constexpr Fact kEvicts{"evictor", "drops keys and values of running streams"};
inline constexpr Fact kMovesKeys{"evictor", "moves keys to lower positions (positions=cache)"};
inline constexpr Fact kHidesKeys{"evictor", "gates hide single keys in the pass"};
inline constexpr Fact kPairGates{"evictor", "needs gates between pairs of tokens"};
inline constexpr Fact kSelectionGates{"evictor", "needs gates that select tokens"};
inline constexpr Fact kObservesMass{"evictor", "observes the attention that tokens receive, or their keys"};
inline constexpr Fact kLayerBudgets{"evictor", "has budgets by layer"};
inline constexpr Fact kHeadBudgets{"evictor", "has budgets by KV head"};

inline constexpr Fact kEncodes{"kv_format", "encodes whole blocks, of some layers"};
inline constexpr Fact kEncodesMost{"kv_format", "encodes whole blocks of the layers that see every key"};
inline constexpr Fact kEncodesUnrotated{"kv_format", "encodes keys as they were before RoPE"};
inline constexpr Fact kRawTail{"kv_format", "keeps the newest tokens raw (residual)"};
inline constexpr Fact kResiduals{"kv_format", "stores residuals of its rows"};
inline constexpr Fact kRowBlocks{"kv_format", "stores a head's row as blocks of values"};
inline constexpr Fact kTwoFormats{"kv_format", "stores keys and values in two formats"};
inline constexpr Fact kWindowFormats{"kv_format", "names a format of layers with a window"};
inline constexpr Fact kNoDocumentRows{"kv_format", "encodes whole blocks in an engine that keeps no rows of documents"};
inline constexpr Fact kEncodesBesideRows{"kv_format", "encodes whole blocks next to an attention pattern's rows"};

inline constexpr Fact kPattern{"attention", "sees blocks of keys"};
inline constexpr Fact kPatternRows{"attention", "stores rows next to the keys"};
inline constexpr Fact kPromptRows{"attention", "stores rows next to the keys while a prompt is computed"};
inline constexpr Fact kFindsLines{"attention", "finds lines of keys by a prompt's queries"};
inline constexpr Fact kSumsAttention{"attention", "sums the attention of earlier queries"};
inline constexpr Fact kHops{"attention", "values diffuse over hops"};

inline constexpr Fact kExits{"exit", "tokens leave the model before its last layer"};

inline constexpr Fact kUnifiedMax{"kernel", "weighs scores relative to one maximum"};
inline constexpr Fact kInt8Copies{"kernel", "holds int8 copies of the weights"};
inline constexpr Fact kWorkers{"kernel", "keeps keys and values in worker processes"};
inline constexpr Fact kTwoBatches{"kernel", "runs a step as two mini-batches"};

inline constexpr Fact kRecurrent{"model", "has recurrent layers"};
inline constexpr Fact kLatent{"model", "has latent attention, whose values are parts of its keys"};
inline constexpr Fact kSinks{"model", "has attention sinks, to which its heads give weight"};
inline constexpr Fact kReadsWeights{"model", "reads weights from the disk during passes"};
inline constexpr Fact kWindows{"model", "has layers that see a window shorter than the context"};
inline constexpr Fact kOnlyWindows{"model", "every layer sees a window"};
inline constexpr Fact kLearnedPositions{"model", "adds learned positions to its tokens"};
inline constexpr Fact kNoPairGates{"model", "has no gates between pairs of tokens"};
inline constexpr Fact kNoSelectionGates{"model", "has no gates that select tokens"};
inline constexpr Fact kSharedKeys{"model", "has layers that read the keys and values of earlier layers"};
inline constexpr Fact kLayerInputs{"model", "looks up an input of each layer by the token"};
inline constexpr Fact kStreams{"model", "has several residual streams"};
inline constexpr Fact kNoTokenizer{"model", "has no tokenizer"};
inline constexpr Fact kWholeTexts{"model", "is an encoder: it reads whole texts in one step, and predicts no tokens"};
inline constexpr Fact kUnequalHeads{"model", "has layers with different heads"};

inline constexpr Fact kLayerTables{"engine",
                                   "every layer has blocks of its own, because its evictor has budgets by layer"};
inline constexpr Fact kSharedTables{"engine", "layers share blocks"};
inline constexpr Fact kSharedHeads{"engine", "KV heads share blocks"};
inline constexpr Fact kHeadTables{"engine", "every KV head has blocks of its own"};
inline constexpr Fact kWindowsTogether{"engine", "layers with a window have no blocks that an evictor can do without"};
inline constexpr Fact kEvictedWindows{"engine",
                                      "layers with a window have blocks of their own where its evictor drops tokens"};
inline constexpr Fact kDroppedWindows{"engine", "layers with a window keep only the newest keys"};
inline constexpr Fact kWindowTables{"engine", "layers with a window have blocks of their own"};
inline constexpr Fact kNoWindowTables{"engine", "no layers have blocks of their own for a window"};
inline constexpr Fact kVirtualPool{"engine", "a stream's blocks are contiguous whole pages (kv_pool virtual)"};
inline constexpr Fact kWidePages{"engine", "pages hold more tokens than a block of the attention pattern"};

inline constexpr Fact kTier{"tier", "moves preempted streams to a tier"};
inline constexpr Fact kStreamsKeys{"tier", "reads the keys of running streams from a file, layer by layer"};
inline constexpr Fact kStore{"store", "stores prefixes"};
inline constexpr Fact kStoreElsewhere{"store", "stores prefixes elsewhere than in a file"};
inline constexpr Fact kFetchesPart{"store", "fetches a part of a prompt's blocks"};
inline constexpr Fact kBlockImportance{"prefix_evictor", "observes the importance of blocks"};
inline constexpr Fact kPrefixFile{"file", "saves or loads a prefix"};

inline constexpr Fact kContext{"context", "is the context of the engine"};
inline constexpr Fact kEncoder{"context", "runs an encoder in the engine"};
inline constexpr Fact kDocumentsApart{"context", "computes documents separately"};
inline constexpr Fact kDocumentsEncoded{"context", "documents are read by an encoder"};
inline constexpr Fact kRefreshesShare{"context", "computes tokens in the middle of a document again"};
inline constexpr Fact kSeesBetween{"context", "documents see more than the prompt's first tokens and themselves"};
inline constexpr Fact kWeighsDocuments{"context", "answers weigh the documents' keys again"};
inline constexpr Fact kSharedPositions{"context", "documents share positions"};

inline constexpr Fact kBeams{"request", "searches with beams"};
inline constexpr Fact kSeveralAnswers{"request", "has several answers"};
inline constexpr Fact kReader{"request", "reads what is computed of its prompt"};
inline constexpr Fact kReadsDocuments{"request", "reads positions inside its documents"};
inline constexpr Fact kRowsForTokens{"request", "has rows in place of tokens"};
inline constexpr Fact kConstraint{"request", "has a constraint"};
inline constexpr Fact kThinkingBudget{"request", "has a thinking budget"};
inline constexpr Fact kStopStrings{"request", "has stop strings"};
inline constexpr Fact kChangedLogits{"request", "has penalties, biases, banned or allowed tokens"};

inline constexpr Fact kSimulates{"executor", "simulates"};
inline constexpr Fact kSimulatedRows{"executor", "simulates an attention pattern that stores rows"};
inline constexpr Fact kSimulatedWindows{"executor", "simulates layers with a window"};
inline constexpr Fact kSimulatedStates{"executor", "simulates recurrent states"};
inline constexpr Fact kNoGates{"executor", "computes no layers whose gates could choose"};
inline constexpr Fact kNoMass{"executor", "computes no attention that could be observed"};
inline constexpr Fact kNoKeys{"executor", "computes no keys that could move"};
inline constexpr Fact kNoSecondModel{"executor", "runs no second model"};

}  // namespace facts
}  // namespace millrace
