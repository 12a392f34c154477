// Staged speculative decoding (Spector and Re, 2023, Accelerating LLM Inference with Staged Speculative Decoding). The
// draft is a tree: the chain that the draft model draws, and beside its tokens the model's next likeliest ones, as far
// as they promise more than the chain's own end. The second stage drafts for the draft model: statistics guess the
// chain, and a pass of the draft model verifies several tokens of it.
//
//   stream   the cat | chain  sat on the mat      the model gave "sat" 0.6 and "ran" 0.3; "mat" is reached with 0.1
//                    |        ran                 so "ran" is in the tree before "mat" is
#include <algorithm>
#include <tuple>

#include "flow/batch.h"
#include "speculate/drafters/factories.h"
#include "speculate/guessed_chain.h"

namespace millrace {
namespace {

class Staged final : public ModelDrafter {
 public:
  Staged(int64_t drafted, int64_t guesses, int64_t bigrams) : drafted_(drafted), chain_(guesses, bigrams) {}

  std::shared_ptr<DraftMemory> remember() const override { return std::make_shared<ChainMemory>(); }

  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    chain_.draft(chunks, drafted_, true, model);
    for (size_t i = 0; i < chain_.links().size(); ++i) {
      const DraftChunk& chunk = *chain_.links()[i].chunk;
      Sequence& s = *chunk.stream;
      const std::span<const DraftPick> picks = chain_.picks_of(i);
      const int64_t chain = grow(s.draft, picks, chunk.drafted);
      // Where a token beside the chain is kept, the model's keys behind it are not the stream's: observe() sees that.
      s.draft.stored = s.size();
      static_cast<ChainMemory&>(*s.draft.memory).keyed = std::min<int64_t>(chain, std::ssize(picks) - 1);
    }
  }

  void follow(std::span<const DraftChunk> chunks, DraftModel& model) override { chain_.follow(chunks, model); }

  // The draft model has the keys of the chain's tokens that were kept, as far as it has run them.
  void observe(const Sequence& stream, int64_t committed, std::span<const TokenId>) override {
    if (!stream.draft.memory || stream.draft.stored == DraftState::kAll) return;
    auto& memory = static_cast<ChainMemory&>(*stream.draft.memory);
    const int64_t first = stream.size() - committed, most = std::min(committed - 1, std::exchange(memory.keyed, 0));
    int64_t kept = 0;
    while (kept < most &&
           stream.tokens[static_cast<size_t>(first + kept)] == stream.draft.tokens[static_cast<size_t>(kept)])
      ++kept;
    memory.valid = first + kept;
  }

 private:
  struct Leaf {
    int64_t after = 0;  // tokens of the chain before it
    TokenId token = 0;
    float reached = 0;
  };

  // The tree of at most `most` tokens that are likeliest to be reached. The chain's come first, at its own places;
  // returns how many they are.
  int64_t grow(Draft& draft, std::span<const DraftPick> picks, int64_t most) {
    leaves_.clear();
    float reached = 1;
    for (size_t at = 0; at < picks.size(); ++at) {
      for (size_t i = 0; i < picks[at].likely.size(); ++i)
        if (picks[at].likely[i] != picks[at].drawn && picks[at].share[i] > 0)
          leaves_.push_back({static_cast<int64_t>(at), picks[at].likely[i], reached * picks[at].share[i]});
      reached *= picks[at].drawn_share;
    }
    std::ranges::sort(leaves_, [](const Leaf& a, const Leaf& b) {
      return std::tuple(-a.reached, a.after, a.token) < std::tuple(-b.reached, b.after, b.token);
    });
    // The chain is as long as its next token is likelier than the best leaf that it would take the place of.
    int64_t chain = 1;
    reached = picks[0].drawn_share;
    for (; chain < std::min<int64_t>(std::ssize(picks), most); ++chain) {
      reached *= picks[static_cast<size_t>(chain)].drawn_share;
      const int64_t free = most - chain;
      if (free <= usable(chain) && reached < nth_usable(chain, free)) break;
    }
    draft.tokens.resize(static_cast<size_t>(chain));
    draft.parents.clear();
    for (int64_t i = 0; i < chain; ++i) draft.parents.push_back(static_cast<int32_t>(i - 1));
    for (const Leaf& leaf : leaves_) {
      if (draft.size() == most) break;
      if (leaf.after > chain) continue;
      draft.tokens.push_back(leaf.token);
      draft.parents.push_back(static_cast<int32_t>(leaf.after - 1));
    }
    return chain;
  }

  // Leaves beside or behind a chain of so many tokens.
  int64_t usable(int64_t chain) const {
    return std::ranges::count_if(leaves_, [&](const Leaf& leaf) { return leaf.after <= chain; });
  }
  float nth_usable(int64_t chain, int64_t n) const {
    for (const Leaf& leaf : leaves_)
      if (leaf.after <= chain && --n == 0) return leaf.reached;
    return 0;
  }

  int64_t drafted_;
  GuessedChain chain_;
  std::vector<Leaf> leaves_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_staged_drafter(const OptionValues& options) {
  const int64_t drafted = options.integer("k"), nodes = options.integer("nodes");
  if (nodes < drafted) return Error::user("nodes: must be at least k, of which they are a part");
  const int64_t bigrams = options.integer("bigrams");
  return drafter_of({.sizes = {.longest = nodes,
                               .trees = true,
                               .stream_bytes = sizeof(ChainMemory),
                               .shared_bytes = MaxGram::bytes(bigrams)},
                     .depth = drafted,
                     .rows = nodes + 1,
                     .spec = {.options = options},
                     .drafter = std::make_unique<Staged>(drafted, options.integer("guess"), bigrams)});
}

}  // namespace millrace
