// Speculative decoding with a second model (Leviathan, Kalman and Matias, 2023, Fast Inference from Transformers via
// Speculative Decoding; Chen et al., 2023, Accelerating Large Language Model Decoding with Speculative Sampling): a
// smaller one drafts k tokens, one pass each, for all streams of the step at once. Each token is drawn with the
// stream's sampling and the random number of its position, so the draft is right where the two models draw the same
// token. Before a draft, the model has the keys and values of all the stream's tokens but the last one or two:
//
//   stream   the cat sat .         all of the last draft was right, so it lacks "sat", and "." has just been chosen
//   pass 1   sat . -> and          pass 2   and -> ran          ...          the last drafted token is not run
//
// Prompts, and streams that have no draft, are run after the step's own pass.
#include <algorithm>

#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

class ModelDrafter final : public Drafter {
 public:
  ModelDrafter(std::string path, int64_t drafted) : path_(std::move(path)), drafted_(drafted) {}

  int64_t longest() const override { return drafted_; }
  bool has_model() const override { return true; }
  std::string model_path() const override { return path_; }

  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    begin(chunks.size());
    for (const DraftChunk& chunk : chunks) {
      if (chunk.drafted == 0) continue;
      Sequence& s = *chunk.stream;
      const int64_t first = std::min(chunk.first, s.draft.stored);
      add(chunk, {chunk.owner, &s, first, s.size() - first, true});
      s.draft.stored = s.size() + chunk.drafted - 1;
    }
    for (int64_t pass = 0; !runs_.empty(); ++pass) {
      model.run(runs_);
      take_drawn(pass);
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

  // The token drawn in this pass is the draft's next one, and the next pass runs it where another one is wanted.
  void take_drawn(int64_t pass) {
    size_t left = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      Sequence& s = *chunks_[i]->stream;
      s.draft.tokens[static_cast<size_t>(pass)] = runs_[i].drawn;
      if (pass + 1 == chunks_[i]->drafted) continue;
      chunks_[left] = chunks_[i];
      runs_[left++] = {chunks_[i]->owner, &s, s.size() + pass, 1, true};
    }
    runs_.resize(left);
    chunks_.resize(left);
  }

  std::string path_;
  int64_t drafted_;
  std::vector<DraftRun> runs_;             // of the next pass
  std::vector<const DraftChunk*> chunks_;  // ... their chunks
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_model_drafter(const OptionValues& options) {
  return std::unique_ptr<Drafter>(std::make_unique<ModelDrafter>(options.text("model"), options.integer("k")));
}

}  // namespace millrace
