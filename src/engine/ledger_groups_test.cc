// BlockLedger where layers have blocks of their own, or windows, and what note_eviction() tells of an evictor's choice.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/block_ledger.h"
#include "engine/token_evictions.h"
#include "formats/format.h"
#include "kv/window_groups.h"

namespace millrace {
namespace {

class LedgerGroups : public ::testing::Test {
 protected:
  void open(const KvLayout& layout) {
    auto pool = KvPool::create(layout, 20);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::make_unique<KvPool>(std::move(*pool));
    ledger_ = std::make_unique<BlockLedger>(*pool_, nullptr);
  }
  LiveStream& stream(RequestId id) {
    auto made = std::make_unique<LiveStream>();
    made->sequence.id = id;
    made->sequence.phase = StreamPhase::running;
    made->sequence.kv.by_layer = pool_->divided();
    lists_.add_running(std::move(made));
    return *lists_.running().back();
  }
  std::string checked() const {
    const auto result = ledger_->check(lists_.table());
    return result.ok() ? "" : result.error().message;
  }

  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<BlockLedger> ledger_;
  StreamLists lists_;
};

void take_turns(LiveStream& stream, int64_t computed, BlockLedger& ledger) {
  ASSERT_TRUE(ledger.reserve(stream, computed));
  stream.sequence.computed = computed;
  ASSERT_EQ(stream.sequence.kv.evict_at, computed);
  TokenEviction& eviction = *stream.eviction;
  for (int64_t layer = 0; layer < eviction.layers(); ++layer)
    std::ranges::fill(eviction.tokens(layer).mass(computed - eviction.evicted(layer)), 1);
  eviction.decide();
  ledger.compact(stream);
  note_eviction(stream);
}

// Budgets of 12, 8 and 4 tokens, blocks of 4: decisions at 8 tokens, when the smallest has 4 more, and at 12.
TEST_F(LedgerGroups, LayersGiveBackTheirOwnBlocks) {
  KvLayout layout{find_format("f16"), 4, {{1, 32}, {1, 32}, {1, 32}}};
  layout.use_layer_tables();
  open(layout);
  LiveStream& a = stream(1);
  const auto rule = make_eviction_rule("pyramidkv:budget=8,window=2,beta=3,slack=4,prompt=evicted");
  ASSERT_TRUE(rule.ok());
  a.eviction = std::make_unique<TokenEviction>(*rule, 5, 100, 3, 3);
  KvState& kv = a.sequence.kv;
  kv.windows.resize(2);
  note_eviction(a);
  EXPECT_EQ(kv.most_stored, 16);
  EXPECT_EQ(kv.windows[0].most_stored, 12);
  EXPECT_EQ(kv.windows[1].most_stored, 8);
  const auto tables = [&] {
    return std::vector<size_t>{kv.blocks.size(), kv.windows[0].blocks.size(), kv.windows[1].blocks.size()};
  };
  take_turns(a, 8, *ledger_);
  EXPECT_EQ(tables(), (std::vector<size_t>{2, 2, 1}));
  EXPECT_EQ(ledger_->unheld_blocks(), 15);
  EXPECT_EQ(kv.windows[1].left_out, 4);
  EXPECT_EQ(checked(), "");
  take_turns(a, 12, *ledger_);
  EXPECT_EQ(tables(), (std::vector<size_t>{3, 2, 1}));
  EXPECT_EQ(ledger_->unheld_blocks(), 14);
  EXPECT_EQ(kv.left_out, 0);
  EXPECT_EQ(kv.windows[0].left_out, 4);
  EXPECT_EQ(kv.windows[1].left_out, 8);
  EXPECT_EQ(checked(), "");

  const BlockId last = kv.windows[1].blocks.back();
  kv.windows[1].blocks.pop_back();
  EXPECT_EQ(checked(), "stream 1: layer 2 stores 4 tokens in 0 blocks");
  kv.windows[1].blocks.push_back(last);
  EXPECT_EQ(checked(), "");
  ledger_->release(a);
  a.sequence.computed = 0;
  EXPECT_EQ(ledger_->unheld_blocks(), 20);
}

// Of the group of a window only the blocks that it still sees are shared; holders are those of the first group.
TEST_F(LedgerGroups, WindowsShareTheBlocksThatAreSeen) {
  KvLayout layout{
      find_format("f16"), 4, {{.kv_heads = 1, .head_dim = 32}, {.kv_heads = 1, .head_dim = 32, .window = 4}}};
  split_windows(layout, 400, 4);
  ASSERT_EQ(layout.windows.size(), 1u);
  open(layout);
  LiveStream& a = stream(1);
  a.sequence.tokens.assign(16, 7);
  ASSERT_TRUE(ledger_->reserve(a, 16));
  a.sequence.computed = 16;
  ledger_->give_back(a);
  EXPECT_EQ(ledger_->unheld_blocks(), 16);
  LiveStream& b = stream(2);
  ledger_->share(a.sequence, b, 16);
  EXPECT_EQ(b.sequence.computed, 16);
  EXPECT_EQ(ledger_->unheld_blocks(), 16);
  for (const BlockId block : a.sequence.kv.blocks) EXPECT_EQ(ledger_->holders(block), 2);
  const WindowBlocks &of_a = a.sequence.kv.windows[0], &of_b = b.sequence.kv.windows[0];
  EXPECT_EQ(of_b.dead, of_a.dead);
  EXPECT_EQ(of_b.blocks.back(), of_a.blocks.back());
  EXPECT_EQ(checked(), "");
  for (LiveStream* one : {&a, &b}) {
    ledger_->release(*one);
    one->sequence.computed = 0;
  }
  EXPECT_EQ(ledger_->unheld_blocks(), 20);
  EXPECT_EQ(pool_->group(1).free_blocks(), pool_->group(1).total_blocks());
}

// Segments of documents in the slots that each head keeps: as many as it has kept tokens before them.
TEST(NoteEviction, SegmentsFollowTheSlotsOfEachHead) {
  const auto rule = make_eviction_rule("h2o:budget=6,recent=0,slack=4,prompt=evicted,scope=head");
  ASSERT_TRUE(rule.ok());
  LiveStream stream;
  stream.context.sees = {{.begin = 0, .end = 3, .bias = 1}, {.begin = 3, .end = 7}, {7, ContextPlan::kOpenEnd}};
  note_eviction(stream);
  EXPECT_EQ(stream.sees, stream.context.sees);
  EXPECT_EQ(stream.sequence.kv.evict_at, 0) << "no evictor";
  stream.eviction = std::make_unique<TokenEviction>(*rule, 5, 100, 2);
  note_eviction(stream);
  EXPECT_EQ(stream.sees, stream.context.sees) << "all tokens are stored";
  EXPECT_EQ(stream.sees_lists, 1);
  const auto mass = stream.eviction->mass(10);  // [tokens, heads]: of even ones in head 0, of later ones in head 1
  for (size_t i = 0; i < 10; ++i) mass[2 * i] = i % 2 == 0 ? 100 : 1, mass[2 * i + 1] = static_cast<int64_t>(i);
  stream.eviction->decide();
  note_eviction(stream);
  EXPECT_EQ(stream.sees_lists, 2);
  ASSERT_EQ(stream.sees.size(), 6u);
  const auto positions = stream.eviction->positions();
  bool differ = false;
  for (size_t head = 0; head < 2; ++head)
    for (size_t i = 0; i < 3; ++i) {
      const auto before = [&](int64_t token) {
        int64_t count = 0;
        for (size_t slot = 0; slot < 6; ++slot) count += positions[2 * slot + head] < token;
        return count;
      };
      KeySegment expected = stream.context.sees[i];
      expected.begin = before(expected.begin);
      if (expected.end != ContextPlan::kOpenEnd) expected.end = before(expected.end);
      EXPECT_EQ(stream.sees[3 * head + i], expected) << head << " " << i;
      differ |= stream.sees[i] != stream.sees[3 + i];
    }
  EXPECT_TRUE(differ);
  EXPECT_EQ(stream.sequence.kv.left_out, 4);
  EXPECT_EQ(stream.sequence.kv.evict_at, 14);
}

}  // namespace
}  // namespace millrace
