#include "speculate/exit_drafter.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr double kStep = 0.01;           // the paper's epsilon: a step's change of the threshold ...
constexpr double kThresholdKeeps = 0.9;  // ... is averaged in; beta 2
constexpr double kShareKeeps = 0.5;      // of the average share of kept tokens; beta 1

struct ExitMemory final : DraftMemory {
  explicit ExitMemory(double p) : threshold(p) {}
  double threshold;
  double share = 1;                   // of drafted tokens that were kept, averaged
  int64_t drafted = 0, accepted = 0;  // of the stream, when it was last looked at
};

class ExitDrafter final : public ModelDrafter {
 public:
  explicit ExitDrafter(const DraftExit& exit) : threshold_(exit.threshold), wanted_(exit.wanted) {}

  std::shared_ptr<DraftMemory> remember() const override { return std::make_shared<ExitMemory>(threshold_); }

  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    runs_.clear();
    chunks_.clear();
    runs_.reserve(chunks.size());
    chunks_.reserve(chunks.size());
    for (const DraftChunk& chunk : chunks) {
      if (chunk.drafted == 0) continue;
      adapt(*chunk.stream);
      chunks_.push_back(&chunk);
      runs_.push_back(run_of(chunk, chunk.first, chunk.own));
    }
    for (int64_t pass = 0; !runs_.empty(); ++pass) {
      model.run(runs_);
      take_drawn(pass);
    }
  }

 private:
  DraftRun run_of(const DraftChunk& chunk, int64_t first, int64_t count) const {
    DraftRun run{chunk.owner, chunk.stream, first, count, true};
    run.weighs = threshold_ > 0;
    return run;
  }

  void take_drawn(int64_t pass) {
    size_t left = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const DraftChunk& chunk = *chunks_[i];
      Sequence& s = *chunk.stream;
      s.draft.tokens[static_cast<size_t>(pass)] = runs_[i].drawn;
      if (pass + 1 == chunk.drafted || unsure(s, runs_[i])) {
        s.draft.tokens.resize(static_cast<size_t>(pass + 1));
        continue;
      }
      chunks_[left] = chunks_[i];
      runs_[left++] = run_of(chunk, s.size() + pass, 1);
    }
    runs_.resize(left);
    chunks_.resize(left);
  }

  static ExitMemory& memory_of(const Sequence& s) { return static_cast<ExitMemory&>(*s.draft.memory); }

  bool unsure(const Sequence& s, const DraftRun& run) const {
    return threshold_ > 0 && static_cast<double>(run.confidence) < memory_of(s).threshold;
  }

  // After each step that verified a draft.
  void adapt(const Sequence& s) const {
    if (threshold_ <= 0 || wanted_ <= 0) return;
    ExitMemory& m = memory_of(s);
    const int64_t drafted = s.draft.drafted - std::exchange(m.drafted, s.draft.drafted);
    const int64_t accepted = s.draft.accepted - std::exchange(m.accepted, s.draft.accepted);
    if (drafted == 0) return;
    m.share = kShareKeeps * m.share + (1 - kShareKeeps) * static_cast<double>(accepted) / static_cast<double>(drafted);
    const double wanted = m.threshold + (m.share <= wanted_ ? kStep : -kStep);
    m.threshold = std::clamp(kThresholdKeeps * m.threshold + (1 - kThresholdKeeps) * wanted, 0.0, 1.0);
  }

  double threshold_, wanted_;
  std::vector<DraftRun> runs_;             // of the next pass
  std::vector<const DraftChunk*> chunks_;  // ... their chunks
};

}  // namespace

std::unique_ptr<Drafter> make_exit_drafter(DraftModelSpec spec, const DraftExit& exit) {
  return drafter_of({.sizes = {.longest = exit.drafted, .stream_bytes = sizeof(ExitMemory)},
                     .depth = exit.drafted,
                     .spec = std::move(spec),
                     .drafter = std::make_unique<ExitDrafter>(exit)});
}

}  // namespace millrace
