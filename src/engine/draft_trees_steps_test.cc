// Trees of drafted tokens step by step: the kept path is stored at the slots of a chain (the scripted executor compares
// all slots), how many tokens a step commits, and what the drafter hears.
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

struct HeardByTree {
  std::vector<int64_t> committed;
  std::vector<size_t> probed;
};

// Drafts two wrong tokens and the right ones behind them, each with a wrong sibling, and two probes.
class TreeDrafter final : public TextDrafter {
 public:
  TreeDrafter(int64_t right, HeardByTree& heard) : right_(right), heard_(heard) {}
  void propose(const Sequence& s, int64_t most, Draft& out) override {
    const auto add = [&](TokenId token, int64_t parent) {
      if (out.size() >= most) return;
      out.tokens.push_back(token);
      out.parents.push_back(static_cast<int32_t>(parent));
    };
    add(5, -1);
    add(6, 0);
    int64_t parent = -1;
    for (int64_t i = 0; i < right_; ++i) {
      const int64_t at = s.generated() + i;
      add(7, parent);
      add(static_cast<TokenId>(100'000 + 1000 * s.request.sampling.seed + static_cast<uint64_t>(at)), parent);
      parent = 2 + 2 * i + 1;
    }
    const int64_t before = out.size();
    add(8, parent);
    add(9, -1);
    out.probes = out.size() - before;
  }
  void observe(const Sequence&, int64_t committed, std::span<const TokenId> probed) override {
    heard_.committed.push_back(committed);
    heard_.probed.push_back(probed.size());
  }

 private:
  int64_t right_;
  HeardByTree& heard_;
};

std::unique_ptr<Drafter> tree_drafter(int64_t right, HeardByTree& heard) {
  return text_drafter({.longest = 2 + 2 * right + 2, .trees = true}, std::make_unique<TreeDrafter>(right, heard));
}

TEST(DraftTreesSteps, TheKeptPathMovesToTheSlotsOfAChain) {
  HeardByTree heard;
  const auto engine = std::make_unique<ScriptedEngine>(scripted_options(20), nullptr, Script{}, tree_drafter(2, heard));
  engine->add(1, scripted_request(1000, 5, 14));
  // Near the end the tree is cut: behind 14 tokens to two wrong ones and a wrong sibling.
  EXPECT_EQ(engine->watch(),
            (Lines{"admit 1; 1:[0+5]* | 1 runs 5/6 2", "1:[5+9]*8 | 1 runs 8/9 4", "1:[8+9]*8 | 1 runs 11/12 5",
                   "1:[11+7]*6 | 1 runs 14/15 5", "1:[14+4]*3 | 1 runs 15/16 5", "1:[15+3]*2 | 1 runs 16/17 5",
                   "1:[16+2]*1 | 1 runs 17/18 5", "1:[17+1]* | "}));
  ASSERT_EQ(engine->all.size(), 14u);
  for (size_t i = 0; i < 14; ++i) EXPECT_EQ(engine->all[i].token, static_cast<TokenId>(101'000 + i));
  EXPECT_EQ(heard.committed, (std::vector<int64_t>{1, 3, 3, 3, 1, 1, 1}));
  EXPECT_EQ(heard.probed, (std::vector<size_t>{0, 2, 2, 0, 0, 0, 0}));
  const RequestTimings& t = engine->all.back().timings;
  EXPECT_EQ(t.target_passes, 8);
  EXPECT_EQ(t.accepted_tokens, 6);
  EXPECT_EQ(t.drafted_tokens, 6 + 6 + 6 + 3 + 2 + 1) << "without probes";
}

}  // namespace
}  // namespace millrace
