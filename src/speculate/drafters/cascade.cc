// Cascade speculative drafting (Chen et al., 2024, Cascade Speculative Drafting for Even Faster LLM Inference), down to
// statistics that cost nothing. The vertical cascade: the draft model does not decode token by token either, it
// verifies what the statistics guess. The horizontal one: a draft's first tokens, which are the likeliest to be kept,
// are the draft model's; the later ones are the statistics' own.
#include <fmt/format.h>

#include "speculate/drafters/factories.h"
#include "speculate/guessed_chain.h"

namespace millrace {
namespace {

constexpr int64_t kMaxCascaded = 64;

class Cascade final : public ModelDrafter {
 public:
  Cascade(int64_t drafted, int64_t guesses, int64_t bigrams) : drafted_(drafted), chain_(guesses, bigrams) {}

  std::shared_ptr<DraftMemory> remember() const override { return std::make_shared<ChainMemory>(); }

  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    chain_.draft(chunks, drafted_, false, model);
    for (const GuessedChain::Link& link : chain_.links()) {
      Sequence& s = *link.chunk->stream;
      const int64_t tail = chain_.grams().guess(s, link.done, link.chunk->drafted - link.done);
      s.draft.tokens.resize(static_cast<size_t>(link.done + tail));
      s.draft.stored = s.size() + link.done - 1;
    }
  }

  void follow(std::span<const DraftChunk> chunks, DraftModel& model) override { chain_.follow(chunks, model); }

 private:
  int64_t drafted_;
  GuessedChain chain_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_cascade_drafter(const OptionValues& options) {
  const int64_t drafted = options.integer("k"), tail = options.integer("tail");
  if (drafted + tail > kMaxCascaded)
    return Error::user(fmt::format("tail: {} tokens behind k={} are {}; a draft has at most {}", tail, drafted,
                                   drafted + tail, kMaxCascaded));
  const int64_t longest = drafted + tail, bigrams = options.integer("bigrams");
  return drafter_of(
      {.sizes = {.longest = longest, .stream_bytes = sizeof(ChainMemory), .shared_bytes = MaxGram::bytes(bigrams)},
       .depth = longest,
       .rows = longest + 1,
       .spec = {.options = options},
       .drafter = std::make_unique<Cascade>(drafted, options.integer("guess"), bigrams)});
}

}  // namespace millrace
