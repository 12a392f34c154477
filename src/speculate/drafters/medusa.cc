// Medusa (Cai et al., 2024, Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads): heads on
// the model's hidden state each guess a token further on, all of them at once, before the step. The draft is a sparse
// tree of a fixed shape over their candidates: the combinations that are most often right.
//
//   stream   the cat | heads  sat 0.6, ran      on 0.5, away       tokens   sat on ran .
//                                                                  parents  -1  0  -1  1
//
// The hidden state is that of the token before the stream's last one, from whose logits that one was chosen.
#include <algorithm>

#include "flow/batch.h"
#include "speculate/candidate_tree.h"
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

class Medusa final : public ModelDrafter {
 public:
  Medusa(int64_t heads, int64_t top) : heads_(static_cast<size_t>(heads)), top_(top) {}

  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    runs_.clear();
    picks_.resize(chunks.size() * heads_);
    chunks_.clear();
    for (const DraftChunk& chunk : chunks) {
      if (chunk.drafted == 0) continue;
      const Sequence& s = *chunk.stream;
      DraftRun run{chunk.owner, &s, s.size() - 1, 1, true};
      run.weighs = true;
      run.picks = picks_of(chunks_.size());
      runs_.push_back(run);
      chunks_.push_back(&chunk);
    }
    if (!runs_.empty()) model.run(runs_);
    for (size_t i = 0; i < chunks_.size(); ++i) grow(*chunks_[i], picks_of(i));
  }

 private:
  std::span<DraftPick> picks_of(size_t index) { return std::span(picks_).subspan(index * heads_, heads_); }

  // Nodes of the levels, as far as one of them may be among the tokens.
  void grow(const DraftChunk& chunk, std::span<const DraftPick> picks) {
    tree_.clear();
    int64_t first = 0, last = tree_.add(-1, picks[0], top_, true);
    for (size_t head = 1; head < picks.size() && last < kMaxCandidates; ++head) {
      const int64_t level = first;
      first = last;
      for (int64_t node = level; node < first; ++node) last += tree_.add(node, picks[head], top_, true);
    }
    tree_.choose(chunk.drafted, top_ > 1, chunk.stream->draft);
  }

  static constexpr int64_t kMaxCandidates = 4096;

  size_t heads_;
  int64_t top_;
  CandidateTree tree_;
  std::vector<DraftRun> runs_;
  std::vector<const DraftChunk*> chunks_;  // theirs
  std::vector<DraftPick> picks_;           // of all chunks, one of each head
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_medusa_drafter(const OptionValues& options) {
  const int64_t heads = options.integer("k"), top = options.integer("top");
  const int64_t tokens = top > 1 ? options.integer("tokens") : std::min(heads, options.integer("tokens"));
  if (options.text("model").empty()) return Error::user("model: must name the folder of a checkpoint, model=PATH");
  return drafter_of({.sizes = {.longest = tokens, .trees = top > 1},
                     .depth = std::min(tokens, heads),
                     .spec = {"medusa", options},
                     .drafter = std::make_unique<Medusa>(heads, top)});
}

}  // namespace millrace
