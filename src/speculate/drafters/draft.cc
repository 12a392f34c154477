// Speculative decoding with a second model (Leviathan, Kalman and Matias, 2023, Fast Inference from Transformers via
// Speculative Decoding; Chen et al., 2023, Accelerating Large Language Model Decoding with Speculative Sampling): a
// smaller one drafts k tokens, one pass each, for all streams of the step at once. Each token is drawn with the
// stream's sampling and the random number of its position, so the draft is right where the two models draw the same
// token; or, where the acceptance needs the odds, with random numbers of its own. Before a draft, the model has the
// keys and values of all the stream's tokens but the last one or two:
//
//   stream   the cat sat .         all of the last draft was right, so it lacks "sat", and "." has just been chosen
//   pass 1   sat . -> and          pass 2   and -> ran          ...          the last drafted token is not run
//
// With several branches a pass runs one token of each. Prompts, and streams that have no draft, are run after the
// step's own pass.
#include <fmt/format.h>

#include <algorithm>

#include "flow/batch.h"
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

class WholeModelDrafter final : public ModelDrafter {
 public:
  WholeModelDrafter(int64_t drafted, int64_t branches) : drafted_(drafted), branches_(branches) {}

  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    begin(chunks.size());
    for (const DraftChunk& chunk : chunks) {
      if (chunk.drafted == 0) continue;
      Sequence& s = *chunk.stream;
      const int64_t first = std::min(chunk.first, s.draft.stored);
      add(chunk, {chunk.owner, &s, first, s.size() - first, true});
      // The last whole level is not run where no other follows.
      s.draft.stored = s.size() + std::max<int64_t>(0, chunk.drafted / branches_ - 1);
      if (branches_ > 1) link(s.draft);
    }
    for (int64_t level = 0; !runs_.empty(); ++level) {
      for (size_t i = 0; i < runs_.size(); ++i) draw_into(runs_[i], *chunks_[i], level);
      model.run(runs_);
      take_drawn(level);
    }
  }

  void follow(std::span<const DraftChunk> chunks, DraftModel& model) override {
    begin(chunks.size());
    for (const DraftChunk& chunk : chunks) {
      if (chunk.drafted > 0) continue;
      const int64_t first = std::min(chunk.first, chunk.stream->draft.stored);
      add(chunk, {chunk.owner, chunk.stream, first, chunk.first + chunk.own - first});
      chunk.stream->draft.stored = DraftState::kAll;
    }
    if (!runs_.empty()) model.run(runs_);
  }

 private:
  void begin(size_t chunks) {
    runs_.clear();
    chunks_.clear();
    runs_.reserve(chunks);
    chunks_.reserve(chunks);
  }
  void add(const DraftChunk& chunk, const DraftRun& run) {
    runs_.push_back(run);
    chunks_.push_back(&chunk);
  }

  void link(Draft& draft) const {
    draft.parents.reserve(static_cast<size_t>(drafted_ * branches_));
    draft.parents.resize(draft.tokens.size());
    for (int64_t i = 0; i < draft.size(); ++i)
      draft.parents[static_cast<size_t>(i)] = static_cast<int32_t>(std::max<int64_t>(-1, i - branches_));
  }

  // Drafted tokens of this level.
  int64_t width(const DraftChunk& chunk, int64_t level) const {
    return std::min(branches_, chunk.drafted - level * branches_);
  }

  void draw_into(DraftRun& run, const DraftChunk& chunk, int64_t level) const {
    run.branches = branches_;
    run.more = std::span(chunk.stream->draft.tokens)
                   .subspan(static_cast<size_t>(level * branches_ + 1), static_cast<size_t>(width(chunk, level) - 1));
  }

  // The tokens drawn in this pass are the draft's next level, and the next pass runs those that another one follows.
  void take_drawn(int64_t level) {
    size_t left = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      Sequence& s = *chunks_[i]->stream;
      s.draft.tokens[static_cast<size_t>(level * branches_)] = runs_[i].drawn;
      const int64_t next = width(*chunks_[i], level + 1);
      if (next <= 0) continue;
      chunks_[left] = chunks_[i];
      runs_[left++] = {chunks_[i]->owner, &s, s.size() + level * branches_, next, true};
    }
    runs_.resize(left);
    chunks_.resize(left);
  }

  int64_t drafted_;  // by each branch
  int64_t branches_;
  std::vector<DraftRun> runs_;             // of the next pass
  std::vector<const DraftChunk*> chunks_;  // ... their chunks
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_model_drafter(const OptionValues& options) {
  const int64_t k = options.integer("k"), branches = options.integer("branches");
  if (branches > 1 && k * branches > kMaxTreeTokens)
    return Error::user(fmt::format("branches: {} branches of k={} tokens are {}; a tree has at most {}", branches, k,
                                   k * branches, kMaxTreeTokens));
  return drafter_of({.sizes = {.longest = k * branches, .trees = branches > 1},
                     .depth = k,
                     .rows = branches,
                     .spec = {.options = options},
                     .drafter = std::make_unique<WholeModelDrafter>(k, branches)});
}

}  // namespace millrace
