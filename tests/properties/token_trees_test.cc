// Token trees: every path of a tree has the logits of the same tokens as a chain, bit for bit, in every architecture,
// KV format and kernel table; and so has what follows a path whose keys and values were moved to the first slots behind
// the stream. Segments: tokens that see only their own segment have the bits of a stream of their own.
#include <gtest/gtest.h>

#include "model_runner.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

struct TreeCase {
  std::string model;
  const char* kv_format;
  Isa isa;
};

struct Node {
  TokenId token;
  int32_t parent;
};

class TokenTrees : public ::testing::TestWithParam<TreeCase> {
 protected:
  void SetUp() override {
    WithIsa scope(GetParam().isa);
    auto loaded =
        TestRunner::load(golden_model(GetParam().model),
                         {.threads = 2, .context = 128, .kv_format = GetParam().kv_format, .block_tokens = 8});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    test_ = std::move(*loaded);
  }
  ModelRunner& runner() { return test_->runner(); }
  int64_t vocab() const { return test_->model().spec().vocab; }
  std::vector<TokenId> text(int64_t seed, int64_t tokens) const {
    return make_request(seed, tokens, 1, vocab()).prompt;
  }

  // The logits of the last token of `tokens`, as a stream of its own, in chunks.
  std::vector<float> chain(const std::vector<TokenId>& tokens, int64_t chunk) {
    const auto all = test_->logits(tokens, chunk);
    return {all.end() - vocab(), all.end()};
  }

  static std::vector<int32_t> path(const std::vector<Node>& nodes, int32_t node) {
    std::vector<int32_t> out;
    for (; node >= 0; node = nodes[static_cast<size_t>(node)].parent) out.insert(out.begin(), node);
    return out;
  }
  static std::vector<TokenId> followed(std::vector<TokenId> before, const std::vector<Node>& nodes, int32_t node) {
    for (const int32_t i : path(nodes, node)) before.push_back(nodes[static_cast<size_t>(i)].token);
    return before;
  }

  // Runs `plain` tokens and then the tree in one span behind `stored` tokens; logits of every node.
  std::vector<std::vector<float>> run_tree(const std::vector<TokenId>& before, int64_t stored,
                                           const std::vector<Node>& nodes) {
    test_->logits({before.begin(), before.begin() + stored});
    runner().start();
    runner().begin(test_->blocks(), stored);
    for (int64_t i = stored; i < std::ssize(before); ++i) runner().add(before[static_cast<size_t>(i)], i);
    std::vector<int32_t> parents;
    for (const Node& node : nodes) {
      parents.push_back(node.parent);
      const auto depth = std::ssize(path(nodes, static_cast<int32_t>(parents.size()) - 1));
      runner().add(node.token, std::ssize(before) + depth - 1, true);
    }
    runner().see({.parents = parents});
    runner().forward();
    std::vector<std::vector<float>> rows;
    for (size_t i = 0; i < nodes.size(); ++i)
      rows.emplace_back(runner().logits(static_cast<int64_t>(i)), runner().logits(static_cast<int64_t>(i) + 1));
    return rows;
  }

  std::vector<Node> random_tree(int64_t seed, int64_t count) const {
    std::vector<Node> nodes;
    const auto tokens = text(seed, count);
    for (int32_t i = 0; i < count; ++i) {
      const double draw = philox_uniform(static_cast<uint64_t>(seed), 17, static_cast<uint64_t>(i));
      const auto parent = static_cast<int32_t>(draw * 2 * (i + 1)) - 1;
      nodes.push_back({tokens[static_cast<size_t>(i)], parent < i ? parent : i - 1});
    }
    return nodes;
  }

  std::unique_ptr<TestRunner> test_;
};

TEST_P(TokenTrees, APathHasTheBitsOfAChain) {
  for (const auto& [before, plain, count] : {std::tuple(21, 1, 13), {1, 0, 64}, {40, 3, 9}}) {
    const auto prompt = text(before, before);
    const auto nodes = random_tree(before, count);
    const auto rows = run_tree(prompt, before - plain, nodes);
    for (int32_t i = 0; i < count; i += 3)
      EXPECT_TRUE(rows[static_cast<size_t>(i)] == chain(followed(prompt, nodes, i), i % 2 ? 7 : 0))
          << before << " tokens, node " << i;
  }
}

TEST_P(TokenTrees, WhatFollowsAKeptPathHasTheBitsOfAChain) {
  const auto prompt = text(3, 29);
  const auto nodes = random_tree(4, 12);
  for (const int32_t kept : {0, 7, 11}) {
    run_tree(prompt, 29, nodes);
    std::vector<int32_t> slots;
    for (int32_t i = 0; i < 29; ++i) slots.push_back(i);
    for (const int32_t i : path(nodes, kept)) slots.push_back(29 + i);
    runner().kv().compact(test_->blocks(), slots);
    auto tokens = followed(prompt, nodes, kept);
    const auto stored = std::ssize(tokens);
    tokens.push_back(5);
    test_->step(std::span(tokens).last(1), stored);
    const std::vector<float> after(runner().logits(), runner().logits(1));
    EXPECT_TRUE(after == chain(tokens, 0)) << kept;
  }
}

TEST_P(TokenTrees, ASegmentAloneHasTheBitsOfAStream) {
  const auto first = text(5, 19), second = text(6, 33);
  const auto alone = test_->logits(second);
  test_->logits(first);
  for (const int64_t chunk : {33, 10}) {
    std::vector<float> rows;
    for (int64_t begin = 0; begin < 33; begin += chunk) {
      runner().start();
      runner().begin(test_->blocks(), 19 + begin);
      const int64_t count = std::min(chunk, 33 - begin);
      for (int64_t i = begin; i < begin + count; ++i) runner().add(second[static_cast<size_t>(i)], i, true);
      const KeySegment own{19, 19 + 33};
      runner().see({.segments = {&own, 1}});
      runner().forward();
      rows.insert(rows.end(), runner().logits(), runner().logits(count));
    }
    EXPECT_TRUE(rows == alone) << chunk;
  }
}

std::vector<TreeCase> tree_cases() {
  std::vector<TreeCase> cases;
  for (Isa isa : isa_levels()) {
    for (const char* model : {"llama", "gemma3", "mistral", "qwen2moe", "smollm3", "deepseek2"})
      cases.push_back({model, "f32", isa});
    for (const char* format : {"f16", "bf16"}) cases.push_back({"gemma2", format, isa});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, TokenTrees, ::testing::ValuesIn(tree_cases()), [](const auto& test) {
  return test.param.model + "_" + test.param.kv_format + "_" + isa_label(test.param.isa);
});

TEST(VisibleKeysOfModels, RecurrentLayersAreRefused) {
  auto loaded = TestRunner::load(golden_model("mamba"), {});
  ASSERT_TRUE(loaded.ok());
  const auto refused = check_visible((*loaded)->model().spec(), "token trees");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "token trees: the model has recurrent layers, whose state is of every token before it");
}

}  // namespace
}  // namespace millrace
