// State evictors, and the copies of states that the prefix index holds by them.
#include "kv/state_evictor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "formats/format.h"
#include "kv/prefix_index.h"

namespace millrace {
namespace {

std::unique_ptr<StateEvictor> state_evictor(std::string_view text) {
  auto made = make_state_evictor(text);
  EXPECT_TRUE(made.ok());
  return made.ok() ? std::move(*made) : nullptr;
}

TEST(StateEvictors, SayWhichCopiesAreTakenAndStay) {
  const auto last = state_evictor("last"), every = state_evictor("every:k=3"), marconi = state_evictor("marconi");
  for (const int64_t multiple : {1, 2, 3, 6}) {
    EXPECT_FALSE(last->takes(multiple));
    EXPECT_FALSE(marconi->takes(multiple));
    EXPECT_EQ(every->takes(multiple), multiple % 3 == 0) << multiple;
    EXPECT_EQ(every->keeps(StatePlace::answer, multiple), multiple % 3 == 0) << multiple;
  }
  EXPECT_TRUE(last->keeps(StatePlace::prompt, 1));
  EXPECT_TRUE(last->keeps(StatePlace::branch, 1));
  EXPECT_FALSE(last->keeps(StatePlace::answer, 1));
  EXPECT_TRUE(every->keeps(StatePlace::prompt, 1));
  EXPECT_FALSE(marconi->keeps(StatePlace::prompt, 1));
  EXPECT_TRUE(marconi->keeps(StatePlace::branch, 1));
  EXPECT_FALSE(make_state_evictor("first").ok());
  EXPECT_FALSE(make_state_evictor("every:k=0").ok());
}

TEST(StateEvictors, ChooseVictims) {
  // The oldest one saves most.
  const StateUse held[] = {{.saved = 100, .last_use = 1}, {.saved = 10, .last_use = 2}, {.saved = 60, .last_use = 3}};
  EXPECT_EQ(state_evictor("last")->victim(held), 0u);
  EXPECT_EQ(state_evictor("every")->victim(held), 0u);
  EXPECT_EQ(state_evictor("marconi:alpha=0")->victim(held), 0u);
  EXPECT_EQ(state_evictor("marconi")->victim(held), 1u);
  const StateUse branched[] = {{.saved = 1, .last_use = 1, .paths = 2}, {.saved = 9, .last_use = 9, .paths = 1}};
  EXPECT_EQ(state_evictor("marconi")->victim(branched), 1u) << "one that several paths continue goes last";
  EXPECT_EQ(state_evictor("last")->victim(branched), 0u);
}

// Blocks of 4 tokens, and a layer whose state is one number.
class PrefixStateTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBlock = 4;

  void start(std::string_view policy, int64_t copies) {
    KvLayout layout{find_format("f32"), kBlock, {{.kv_heads = 1, .head_dim = 4}, {.state_values = 1}}};
    auto made = KvPool::create(layout, 64, {.states = 1, .copies = copies});
    ASSERT_TRUE(made.ok());
    index_.reset();
    pool_ = std::make_unique<KvPool>(std::move(*made));
    evictor_ = state_evictor(policy);
    index_ = std::make_unique<PrefixIndex>(*pool_, PrefixIndexOptions{.states = evictor_.get()});
    own_ = *pool_->states().allocate();
  }
  // A stream computes these tokens, and stores copies of its state behind each of `points`.
  void compute(std::span<const TokenId> tokens, const std::vector<int64_t>& points) {
    std::vector<BlockId> blocks;
    for (int64_t i = 0; i < std::ssize(tokens) / kBlock; ++i) blocks.push_back(*pool_->allocate());
    index_->insert(tokens, blocks);
    for (const BlockId block : blocks) pool_->release(block);
    for (const int64_t point : points) {
      *pool_->states().values(1, own_) = static_cast<float>(point);
      EXPECT_TRUE(index_->store_state(tokens.first(static_cast<size_t>(point)), 0, own()));
    }
  }
  // The stream of these tokens has stored a later state.
  void replace(std::span<const TokenId> tokens) {
    std::vector<BlockId> blocks(tokens.size() / kBlock, -1);
    index_->replace_state_behind(index_->insert_groups(tokens, std::vector{PrefixBlocks{blocks}}).back());
  }
  std::span<const float> own() { return slot_values(pool_->states(), own_); }
  // The number behind which the prompt continues; 0: there is none.
  int64_t found(std::span<const TokenId> tokens) {
    const PrefixMatch match = index_->match_groups(tokens);
    for (const BlockId block : match.blocks) pool_->release(block);
    EXPECT_EQ(match.blocks.empty(), match.state < 0);
    EXPECT_EQ(index_->known_blocks(tokens), std::ssize(match.blocks));
    if (match.state >= 0) {
      EXPECT_EQ(*pool_->states().values(1, match.state), std::ssize(match.blocks) * kBlock);
    }
    return std::ssize(match.blocks) * kBlock;
  }
  static std::vector<TokenId> text(TokenId first, int64_t count) {
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }

  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<StateEvictor> evictor_;
  std::unique_ptr<PrefixIndex> index_;
  StateId own_ = -1;
};

TEST_F(PrefixStateTest, PrefixesEndAtCopies) {
  start("last", 4);
  const auto tokens = text(0, 40);
  compute(tokens, {8, 24});
  EXPECT_EQ(found(tokens), 24);
  EXPECT_EQ(index_->stored_blocks(tokens), 10);
  EXPECT_EQ(found(std::span(tokens).first(23)), 8);
  EXPECT_EQ(found(std::span(tokens).first(7)), 0);
  EXPECT_EQ(found(text(100, 40)), 0);
  EXPECT_EQ(index_->states().stats().hits, 2);
  EXPECT_FALSE(index_->store_state(text(100, 8), 0, own())) << "not indexed";
  EXPECT_FALSE(index_->store_state(std::span(tokens).first(10), 0, own())) << "not whole blocks";
}

TEST_F(PrefixStateTest, TheSlotsBoundTheCopies) {
  start("last", 2);
  const auto a = text(0, 16), b = text(100, 16), c = text(200, 16);
  compute(a, {16});
  compute(b, {16});
  EXPECT_EQ(found(a), 16);  // now b is the oldest
  compute(c, {16});
  EXPECT_EQ(index_->states().size(), 2);
  EXPECT_EQ(found(b), 0);
  EXPECT_EQ(found(a), 16);
  EXPECT_EQ(found(c), 16);
  EXPECT_EQ(index_->stored_blocks(b), 4) << "the blocks stay";
  EXPECT_EQ(index_->states().stats().evicted, 1);
  EXPECT_EQ(pool_->states().free(), 0);
}

// A slot is filled by its borrower, and becomes the copy.
TEST_F(PrefixStateTest, ALentSlotBecomesACopy) {
  start("last", 2);
  const auto tokens = text(0, 16);
  compute(tokens, {8});
  const auto lent = [&](float value) {
    const StateId slot = index_->states().lend();
    EXPECT_GE(slot, 0);
    *pool_->states().values(1, slot) = value;
    return slot;
  };
  index_->adopt_state(tokens, 0, lent(16));
  EXPECT_EQ(index_->states().held(), 2);
  EXPECT_EQ(found(tokens), 16);
  EXPECT_EQ(found(std::span(tokens).first(15)), 8);
  EXPECT_EQ(found(tokens), 16);
  index_->adopt_state(tokens, 0, lent(99));  // the slot of the oldest copy, that behind 8 tokens
  EXPECT_EQ(found(tokens), 16) << "the copy that was there stays";
  EXPECT_EQ(index_->states().held(), 1);
  index_->adopt_state(text(100, 16), 0, lent(99));
  EXPECT_EQ(index_->states().held(), 1) << "there are no such blocks";
  EXPECT_EQ(pool_->states().free(), 1);
}

TEST_F(PrefixStateTest, BlocksAreSharedByTheirPlace) {
  start("last", 2);
  const auto tokens = text(0, 16);
  compute(tokens, {});
  const std::vector<BlockId> some = index_->share(tokens, 0, 1, 3), all = index_->share(tokens, 0, 0, 4);
  EXPECT_EQ(some, (std::vector<BlockId>{all[1], all[2]}));
  EXPECT_EQ(pool_->references(all[0]), 2);
  EXPECT_EQ(pool_->references(all[2]), 3);
  for (const BlockId block : some) pool_->release(block);
  for (const BlockId block : all) pool_->release(block);
}

// Evicted copies are handed on with the key of their block; replaced ones are not.
TEST_F(PrefixStateTest, EvictedCopiesAreHandedOn) {
  start("last", 2);
  std::vector<std::pair<uint64_t, float>> left;
  index_ = std::make_unique<PrefixIndex>(
      *pool_, PrefixIndexOptions{.states = evictor_.get(), .state_leaving = [&](const PrefixKey& key, StateId slot) {
                                   left.emplace_back(key.low, *pool_->states().values(1, slot));
                                 }});
  const auto a = text(0, 16), b = text(100, 16);
  const auto keys = prefix_chain(a, kBlock, 0);
  compute(a, {8, 16});
  compute(b, {12});
  EXPECT_EQ(left, (std::vector<std::pair<uint64_t, float>>{{keys[1].key.low, 8}})) << "displaced";
  replace(std::span(b).first(12));
  EXPECT_EQ(left.size(), 1u) << "replaced";
  EXPECT_EQ(index_->evict(8), 8);
  EXPECT_EQ(left.size(), 2u);
  EXPECT_EQ(left.back(), (std::pair<uint64_t, float>{keys[3].key.low, 16}));
}

// A prompt is hashed once where blocks and their state are stored.
TEST_F(PrefixStateTest, StoringAStateHashesAPromptOnce) {
  start("last", 2);
  const auto tokens = text(0, 400);
  std::vector<BlockId> blocks;
  const auto store = [&](int64_t count) {
    for (int64_t i = std::ssize(blocks); i < count; ++i) blocks.push_back(*pool_->allocate());
    const PrefixBlocks group{blocks};
    const auto path = index_->insert_groups(std::span(tokens).first(static_cast<size_t>(count * kBlock)), {&group, 1});
    EXPECT_EQ(std::ssize(path), count);
    *pool_->states().values(1, own_) = static_cast<float>(count * kBlock);
    EXPECT_TRUE(index_->store_state_behind(path, own()));
    if (count > 10) index_->replace_state_behind(path[static_cast<size_t>(count - 11)]);
    EXPECT_EQ(index_->key_of(path.back()), prefix_chain(tokens, kBlock, 0)[static_cast<size_t>(count - 1)].key);
  };
  store(10);
  EXPECT_EQ(index_->stats().hashed, 10);
  store(20);
  EXPECT_EQ(index_->stats().hashed, 30);
  EXPECT_EQ(index_->states().size(), 1);
  EXPECT_EQ(found(tokens), 80);
  for (const BlockId block : blocks) pool_->release(block);
}

// 20 copies on one path of 30 blocks, the last one first: each walk ends where an earlier one has been.
TEST_F(PrefixStateTest, CopiesAreOrderedInLinearTime) {
  start("marconi", 31);
  const auto tokens = text(0, 30 * kBlock);
  std::vector<int64_t> points;
  for (int64_t i = 30; i > 10; --i) points.push_back(i * kBlock);
  compute(tokens, points);
  EXPECT_EQ(index_->states().stats().walked, 0) << "each copy is directly before the next one";
  EXPECT_TRUE(index_->store_state(std::span(tokens).first(kBlock), 0, own()));
  EXPECT_EQ(index_->states().stats().walked, 9) << "only the first of the copies behind it has it before it";
  // Branches that share 20 blocks: a copy at the tenth is before all of them.
  start("marconi", 31);
  std::vector<TokenId> branch = text(1000, 20 * kBlock);
  for (TokenId i = 0; i < 2; ++i) {
    branch.resize(20 * kBlock);
    for (const TokenId token : text(2000 + 100 * i, 2 * kBlock)) branch.push_back(token);
    compute(branch, {22 * kBlock});
  }
  EXPECT_TRUE(index_->store_state(std::span(branch).first(10 * kBlock), 0, own()));
  EXPECT_EQ(index_->states().stats().walked, 10 + 2) << "the shared blocks once, and one block of each branch";
  EXPECT_EQ(index_->states().size(), 3);
}

TEST_F(PrefixStateTest, ACopyGoesWithItsBlock) {
  start("last", 4);
  const auto tokens = text(0, 16);
  compute(tokens, {8, 16});
  EXPECT_EQ(index_->evict(1), 1);
  EXPECT_EQ(index_->states().size(), 1);
  EXPECT_EQ(found(tokens), 8);
  index_->clear();
  EXPECT_EQ(index_->states().size(), 0);
  EXPECT_EQ(pool_->states().free(), 4);
}

TEST_F(PrefixStateTest, ReplacedCopiesStayWhereOthersUseThem) {
  start("last", 8);
  auto tokens = text(0, 24), other = text(0, 24);
  compute(tokens, {8, 16});
  replace(std::span(tokens).first(8));
  EXPECT_EQ(found(std::span(tokens).first(12)), 0);
  EXPECT_EQ(index_->states().stats().replaced, 1);
  EXPECT_EQ(found(tokens), 16);
  replace(std::span(tokens).first(16));
  EXPECT_EQ(found(tokens), 16) << "a prompt has continued from it";
  other[10] = 99;
  compute(other, {8});
  replace(std::span(tokens).first(8));
  EXPECT_EQ(index_->states().size(), 2) << "two paths continue it";
}

// Marconi weighs the tokens that a hit saves, which depend on the copies before.
TEST_F(PrefixStateTest, SavedTokensAreThoseBehindTheCopyBefore) {
  start("marconi:alpha=100", 3);
  const auto tokens = text(0, 48), other = text(100, 24);
  compute(tokens, {48, 4, 40});  // save 8, 4 and 36 tokens
  compute(other, {24});
  EXPECT_EQ(found(std::span(tokens).first(8)), 0) << "it saved least";
  EXPECT_EQ(found(std::span(tokens).first(44)), 40);
  compute(text(200, 24), {24});
  EXPECT_EQ(found(tokens), 40) << "the one at 48 saved 8";
}

}  // namespace
}  // namespace millrace
