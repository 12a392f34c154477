#include "speculate/layer_drafter.h"

#include <algorithm>
#include <tuple>

#include "flow/batch.h"
#include "speculate/candidate_tree.h"

namespace millrace {
namespace {

class LayerDrafter final : public ModelDrafter {
 public:
  explicit LayerDrafter(const LayerTree& tree) : depth_(tree.depth), top_(tree.top), assumed_(tree.assumed) {}

  void propose_all(std::span<const DraftChunk> chunks, DraftModel& model) override {
    begin(chunks);
    for (int64_t level = 0; !running_.empty(); ++level) {
      runs_.clear();
      for (Growing* one : running_) runs_.push_back(run_of(*one));
      model.run(runs_);
      size_t left = 0;
      for (Growing* one : running_) {
        for (size_t i = 0; i < one->ran.size(); ++i) one->tree.add(one->ran[i], one->picks[i], top_, assumed_);
        if (level + 1 < depth_ && start_level(*one, depth_ - level - 1)) running_[left++] = one;
      }
      running_.resize(left);
    }
    for (size_t i = 0; i < used_; ++i) {
      Sequence& s = *growing_[i].chunk->stream;
      growing_[i].tree.choose(growing_[i].chunk->drafted, top_ > 1, s.draft);
      s.draft.stored = s.size();  // behind it are the keys of features that were only predicted
    }
  }

  void follow(std::span<const DraftChunk> chunks, DraftModel& model) override {
    runs_.clear();
    for (const DraftChunk& chunk : chunks) {
      if (chunk.drafted > 0) continue;
      const int64_t first = std::min(chunk.first, chunk.stream->draft.stored);
      runs_.push_back({chunk.owner, chunk.stream, first, chunk.first + chunk.own - first});
      chunk.stream->draft.stored = DraftState::kAll;
    }
    if (!runs_.empty()) model.run(runs_);
  }

 private:
  // A stream's tree. While it grows, stream.draft has the nodes that ran, in the order of their slots.
  struct Growing {
    const DraftChunk* chunk = nullptr;
    CandidateTree tree;
    std::vector<int64_t> ran;  // nodes of the pass; -1: the stream's own tokens
    std::vector<DraftPick> picks;
    size_t level = 0;  // first node behind the last pass
    int64_t slots = 0;
  };

  void begin(std::span<const DraftChunk> chunks) {
    used_ = 0;
    running_.clear();
    const auto drafting =
        static_cast<size_t>(std::ranges::count_if(chunks, [](const auto& c) { return c.drafted > 0; }));
    if (growing_.size() < drafting) growing_.resize(drafting);
    for (const DraftChunk& chunk : chunks) {
      if (chunk.drafted == 0) continue;
      Growing& one = growing_[used_++];
      one.chunk = &chunk;
      one.tree.clear();
      one.ran.assign(1, -1);
      one.picks.resize(static_cast<size_t>(top_));
      one.level = 0;
      one.slots = 0;
      chunk.stream->draft.tokens.clear();
      chunk.stream->draft.parents.clear();
      running_.push_back(&one);
    }
  }

  DraftRun run_of(Growing& one) const {
    const DraftChunk& chunk = *one.chunk;
    const Sequence& s = *chunk.stream;
    const auto count = std::ssize(one.ran);
    DraftRun run{chunk.owner, &s, s.size() + one.slots - count, count, true};
    if (one.slots == 0) {
      run.first = std::min(chunk.first, s.draft.stored);
      run.count = s.size() - run.first;
    }
    run.weighs = true;
    run.picks = std::span(one.picks).first(static_cast<size_t>(count));
    return run;
  }

  // The best of the candidates behind the last pass run next, as many as there are slots for in each of the levels that
  // are left. False: there are none.
  bool start_level(Growing& one, int64_t levels) const {
    std::vector<CandidateTree::Node>& nodes = one.tree.nodes();
    Draft& draft = one.chunk->stream->draft;
    const int64_t slots = one.chunk->drafted - one.slots;
    if (slots <= 0) return false;
    const int64_t width = std::clamp<int64_t>(slots / levels, 1, top_);
    one.ran.clear();
    for (size_t i = one.level; i < nodes.size(); ++i) one.ran.push_back(static_cast<int64_t>(i));
    one.level = nodes.size();
    std::ranges::sort(one.ran, [&](int64_t a, int64_t b) {
      return std::tuple(-nodes[static_cast<size_t>(a)].score, a) < std::tuple(-nodes[static_cast<size_t>(b)].score, b);
    });
    one.ran.resize(std::min(one.ran.size(), static_cast<size_t>(width)));
    for (const int64_t index : one.ran) {
      CandidateTree::Node& node = nodes[static_cast<size_t>(index)];
      node.ran = one.slots++;
      draft.tokens.push_back(node.token);
      if (top_ == 1) continue;
      draft.parents.push_back(static_cast<int32_t>(node.parent < 0 ? -1 : nodes[static_cast<size_t>(node.parent)].ran));
    }
    return true;
  }

  int64_t depth_, top_;
  bool assumed_;
  std::vector<Growing> growing_;  // the first `used_` are of this step
  size_t used_ = 0;
  std::vector<Growing*> running_;
  std::vector<DraftRun> runs_;
};

}  // namespace

Result<LayerTree> read_layer_tree(const OptionValues& options) {
  LayerTree tree{.depth = options.integer("k"), .top = options.integer("top")};
  tree.tokens = tree.top > 1 ? options.integer("tokens") : std::min(tree.depth, options.integer("tokens"));
  const std::string& shape = options.text("tree");
  if (shape != "dynamic" && shape != "static") return Error::user("tree: must be dynamic or static, got " + shape);
  tree.assumed = shape == "static";
  return tree;
}

std::unique_ptr<Drafter> make_layer_drafter(DraftModelSpec spec, const LayerTree& tree) {
  return drafter_of({.sizes = {.longest = tree.tokens, .trees = tree.top > 1},
                     .depth = std::min(tree.tokens, tree.depth),
                     .rows = tree.top,
                     .spec = std::move(spec),
                     .drafter = std::make_unique<LayerDrafter>(tree)});
}

}  // namespace millrace
