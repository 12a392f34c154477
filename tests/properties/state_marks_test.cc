// Marks of recurrent states: the copy behind a token is, byte for byte, the state of a stream that ended there,
// for any chunks, threads, batch mates and branches of a tree; and marks change no logits.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "kv/pool.h"
#include "models/model_runner.h"
#include "test_paths.h"

namespace millrace {
namespace {

using StateBytes = std::vector<float>;

constexpr int64_t kMarkSlots = 16, kMarkBlocks = 4;  // blocks of each stream

// A model whose pool has kMarkSlots slots of states.
class MarkedModel {
 public:
  MarkedModel(const std::string& name, int threads) {
    auto files = open_model_files(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf");
    EXPECT_TRUE(files.ok());
    table_ = make_kernel_table(*select_isa());
    auto pool = std::make_shared<ThreadPool>(threads);
    auto model = Model::load(std::make_shared<const ModelFiles>(std::move(*files)), table_, *pool, {.context = 64});
    EXPECT_TRUE(model.ok());
    model_ = std::move(*model);
    auto runner = ModelRunner::create(*model_, table_,
                                      {.threads = std::move(pool),
                                       .layout = KvLayout{find_format("f32"), 16, model_->kv_layers()},
                                       .blocks = 3 * kMarkBlocks + 1,
                                       .places = {.states = kMarkSlots},
                                       .limits = {64, 64, 64},
                                       .streams = 3});
    EXPECT_TRUE(runner.ok());
    runner_ = std::move(*runner);
    for (int64_t i = 0; i < 3 * kMarkBlocks; ++i) blocks_.push_back(*runner_->kv().allocate());
  }

  std::vector<TokenId> draw(uint64_t seed, uint64_t count) const {
    std::vector<TokenId> out;
    for (uint64_t i = 0; i < count; ++i)
      out.push_back(static_cast<TokenId>(philox_uniform(seed, 9, i) * static_cast<double>(vocab())));
    return out;
  }
  int64_t vocab() const { return model_->spec().vocab; }
  void start() { runner_->start(); }
  // Adds a stream to the pass: its tokens from `first` to `end`, with its state in `slot`.
  void add(const std::vector<TokenId>& tokens, int64_t first, int64_t end, int64_t stream, StateId slot,
           const std::vector<StateMark>& marks = {}) {
    begin(first, stream, slot, marks);
    for (int64_t i = first; i < end; ++i) runner_->add(tokens[static_cast<size_t>(i)], i, true);
  }
  // Adds a token of a stream, behind `first` of its tokens, and a tree of tokens behind that.
  void add_tree(int64_t first, TokenId token, const std::vector<TokenId>& tree, const std::vector<int32_t>& parents,
                const std::vector<StateMark>& marks) {
    begin(first, 0, 0, marks);
    runner_->add(token, first, true);
    std::vector<int64_t> positions;
    for (size_t i = 0; i < tree.size(); ++i) {
      positions.push_back(parents[i] < 0 ? first + 1 : positions[static_cast<size_t>(parents[i])] + 1);
      runner_->add(tree[i], positions.back(), true);
    }
    runner_->see({.parents = parents});
  }
  std::vector<float> run() {
    runner_->forward();
    return {runner_->logits(), runner_->logits(runner_->outputs())};
  }
  // The states of all layers in that slot.
  StateBytes state(StateId slot) {
    StateBytes out;
    const std::vector<KvLayer> layers = model_->kv_layers();
    for (size_t l = 0; l < layers.size(); ++l) {
      const float* from = runner_->kv().states().values(static_cast<int64_t>(l), slot);
      out.insert(out.end(), from, from + layers[l].state_values);
    }
    return out;
  }
  // The state behind these tokens, run alone in one pass.
  StateBytes state_behind(const std::vector<TokenId>& tokens) {
    start();
    add(tokens, 0, std::ssize(tokens), 2, kMarkSlots - 1);
    run();
    return state(kMarkSlots - 1);
  }

 private:
  void begin(int64_t first, int64_t stream, StateId slot, const std::vector<StateMark>& marks) {
    runner_->begin(std::span(blocks_).subspan(static_cast<size_t>(stream * kMarkBlocks), kMarkBlocks), first, nullptr,
                   slot);
    runner_->mark_states(marks);
  }

  KernelTable table_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<BlockId> blocks_;
};

std::vector<TokenId> head_of(const std::vector<TokenId>& tokens, int64_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count)};
}

class StateMarks : public ::testing::TestWithParam<std::string> {};

TEST_P(StateMarks, ACopyIsTheStateOfAStreamThatEndedThere) {
  for (const int threads : {1, 3}) {
    MarkedModel model(GetParam(), threads);
    const std::vector<TokenId> tokens = model.draw(1, 14);
    const std::vector<TokenId> other = model.draw(2, 9);
    model.start();
    model.add(tokens, 0, 14, 0, 0);
    const std::vector<float> plain = model.run();
    model.start();  // two streams, one of which has marks
    model.add(other, 0, 9, 1, 8);
    model.add(tokens, 0, 14, 0, 0, {{0, 1}, {4, 2}, {5, 3}, {13, 4}});
    const std::vector<float> marked = model.run();
    EXPECT_EQ(std::vector<float>(marked.begin() + 9 * model.vocab(), marked.end()), plain);
    for (const StateMark& mark : std::vector<StateMark>{{0, 1}, {4, 2}, {5, 3}, {13, 4}})
      EXPECT_EQ(model.state(mark.slot), model.state_behind(head_of(tokens, mark.row + 1))) << mark.row;
    EXPECT_EQ(model.state(0), model.state(4)) << "behind the last token it is the stream's own";
    EXPECT_EQ(model.state(8), model.state_behind(other));
  }
}

// Rows of marks are counted from the chunk's first token.
TEST_P(StateMarks, ALaterChunkMayHaveMarks) {
  MarkedModel model(GetParam(), 1);
  const std::vector<TokenId> tokens = model.draw(3, 12);
  model.start();
  model.add(tokens, 0, 5, 0, 0);
  model.run();
  model.start();
  model.add(tokens, 5, 12, 0, 0, {{1, 1}, {3, 2}});
  model.run();
  EXPECT_EQ(model.state(1), model.state_behind(head_of(tokens, 7)));
  EXPECT_EQ(model.state(2), model.state_behind(head_of(tokens, 9)));
  EXPECT_EQ(model.state(0), model.state_behind(tokens));
}

// A stream continues from a copy as from its own state.
TEST_P(StateMarks, AStreamContinuesFromACopy) {
  MarkedModel model(GetParam(), 1);
  const std::vector<TokenId> tokens = model.draw(4, 11);
  std::vector<TokenId> wrong = tokens;
  for (size_t i = 6; i < 10; ++i) wrong[i] ^= 1;
  model.start();
  model.add(wrong, 0, 10, 0, 0, {{5, 7}});
  model.run();
  model.start();
  model.add(tokens, 6, 11, 0, 7);
  const std::vector<float> behind = model.run();
  model.start();
  model.add(tokens, 0, 11, 1, 3);
  const std::vector<float> plain = model.run();
  EXPECT_EQ(behind, std::vector<float>(plain.begin() + 6 * model.vocab(), plain.end()));
}

// Each token of a tree has the logits and the state of a stream of its path.
TEST_P(StateMarks, TokensOfATreeFollowTheirParents) {
  MarkedModel model(GetParam(), 3);
  const std::vector<TokenId> tokens = model.draw(5, 8);
  const std::vector<TokenId> tree = model.draw(6, 7);
  const std::vector<int32_t> parents = {-1, 0, -1, 1, 2, 0, -1};
  model.start();
  model.add(tokens, 0, 7, 0, 0);
  model.run();
  std::vector<StateMark> marks;
  for (int32_t row = 0; row < 7; ++row) marks.push_back({row, row + 1});
  model.start();
  model.add_tree(7, tokens[7], tree, parents, marks);
  const std::vector<float> logits = model.run();
  EXPECT_EQ(model.state(1), model.state_behind(tokens));
  for (size_t i = 0; i < tree.size(); ++i) {
    std::vector<TokenId> path;
    for (int32_t at = static_cast<int32_t>(i); at >= 0; at = parents[static_cast<size_t>(at)])
      path.insert(path.begin(), tree[static_cast<size_t>(at)]);
    path.insert(path.begin(), tokens.begin(), tokens.end());
    EXPECT_EQ(model.state(i + 1 < tree.size() ? static_cast<StateId>(i + 2) : 0), model.state_behind(path)) << i;
    model.start();
    model.add(path, 0, std::ssize(path), 1, 12);
    const std::vector<float> plain = model.run();
    const auto row = static_cast<ptrdiff_t>(i + 1) * model.vocab();
    EXPECT_EQ(std::vector<float>(logits.begin() + row, logits.begin() + row + model.vocab()),
              std::vector<float>(plain.end() - model.vocab(), plain.end()))
        << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Mixers, StateMarks,
                         ::testing::Values("mamba", "mamba_odd", "falcon_h1_norm", "qwen3next", "qwen35moe"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
