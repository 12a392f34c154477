// Parallel speculative sampling (Monea, Joulin and Grave, 2023, PaSS: Parallel Speculative Sampling): the model itself
// drafts in a single pass. Behind the stream's own tokens it reads look-ahead tokens, which were trained to make it
// predict a token further on each; the step then verifies what it predicted. The first drafted token is the model's own
// choice and always kept, so two passes bring two tokens at least.
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

class PassDrafter final : public ModelDrafter {
 public:
  explicit PassDrafter(int64_t longest) : longest_(static_cast<size_t>(longest)) {}

  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    runs_.clear();
    drafts_.clear();
    picks_.resize(longest_ * chunks.size());
    for (const DraftChunk& chunk : chunks) {
      if (chunk.drafted == 0) continue;
      DraftRun run{chunk.owner, chunk.stream, chunk.first, chunk.own, true};
      run.weighs = true;  // where nothing is drawn, the likeliest token is taken
      run.picks = std::span(picks_).subspan(longest_ * runs_.size(), static_cast<size_t>(chunk.drafted));
      runs_.push_back(run);
      drafts_.push_back(&chunk.stream->draft);
    }
    if (!runs_.empty()) model.run(runs_);
    for (size_t i = 0; i < runs_.size(); ++i) {
      drafts_[i]->tokens.clear();
      for (const DraftPick& pick : runs_[i].picks) drafts_[i]->tokens.push_back(pick.drawn);
    }
  }

 private:
  size_t longest_;
  std::vector<DraftRun> runs_;
  std::vector<DraftState*> drafts_;  // theirs
  std::vector<DraftPick> picks_;     // of all runs, longest_ each
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_pass_drafter(const OptionValues& options) {
  const int64_t longest = options.integer("k") + 1;
  return drafter_of({.sizes = {.longest = longest},
                     .depth = longest,
                     .rows = longest,
                     .spec = {"pass", options},
                     .drafter = std::make_unique<PassDrafter>(longest)});
}

}  // namespace millrace
