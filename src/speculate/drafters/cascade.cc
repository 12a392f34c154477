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

class Cascade final : public Drafter {
 public:
  Cascade(std::string path, int64_t drafted, int64_t tail, int64_t guesses, int64_t bigrams)
      : path_(std::move(path)), drafted_(drafted), tail_(tail), bigrams_(bigrams), chain_(guesses, bigrams) {}

  int64_t longest() const override { return drafted_ + tail_; }
  bool has_model() const override { return true; }
  std::string model_path() const override { return path_; }
  int64_t model_rows() const override { return longest() + 1; }
  int64_t memory_bytes() const override { return sizeof(ChainMemory); }
  int64_t shared_bytes(int64_t) const override { return MaxGram::bytes(bigrams_); }
  std::shared_ptr<DraftMemory> remember(const Sequence&) const override { return std::make_shared<ChainMemory>(); }

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
  std::string path_;
  int64_t drafted_, tail_, bigrams_;
  GuessedChain chain_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_cascade_drafter(const OptionValues& options) {
  const int64_t drafted = options.integer("k"), tail = options.integer("tail");
  if (drafted + tail > kMaxCascaded)
    return Error::user(fmt::format("tail: {} tokens behind k={} are {}; a draft has at most {}", tail, drafted,
                                   drafted + tail, kMaxCascaded));
  return std::unique_ptr<Drafter>(std::make_unique<Cascade>(options.text("model"), drafted, tail,
                                                            options.integer("guess"), options.integer("bigrams")));
}

}  // namespace millrace
