// Which layers become groups of their own, how many blocks these have, and prefixes whose windows were evicted.
#include "kv/window_groups.h"

#include <gtest/gtest.h>

#include "kv/kv_formats.h"
#include "kv/prefix_index.h"

namespace millrace {
namespace {

constexpr int64_t kTokens = 4;  // of a block

KvLayout layout_of(const std::vector<int64_t>& windows) {
  KvLayout layout{find_format("f16"), kTokens, {}};
  for (const int64_t window : windows) layout.layers.push_back({.kv_heads = 1, .head_dim = 8, .window = window});
  return layout;
}

TEST(WindowGroups, LayersWithAWindowBecomeAGroup) {
  KvLayout layout = layout_of({8, 0, 8, 100, 8});
  const int64_t all = layout.block_bytes();
  split_windows(layout, 400, 10);
  EXPECT_EQ(layout.window, 0);
  ASSERT_EQ(layout.windows.size(), 2u);
  EXPECT_EQ(layout.windows[0].window, 8);
  EXPECT_EQ(layout.windows[0].most_held, 8 - 1 + 10 + kTokens);
  EXPECT_EQ(layout.windows[1].window, 100);
  EXPECT_EQ(layout.block_bytes(), all / 5);
  EXPECT_EQ(layout.windows[0].block_bytes(), 3 * all / 5);
  EXPECT_EQ(layout.bytes_per_token(), all / kTokens);
  EXPECT_TRUE(layout.check().ok());
}

TEST(WindowGroups, WindowsAsLongAsTheContextAreNone) {
  KvLayout layout = layout_of({8, 0, 300});
  split_windows(layout, 400, 50);
  ASSERT_EQ(layout.windows.size(), 1u);
  EXPECT_FALSE(layout.layers[2].absent());
  KvLayout one = layout_of({8, 0});
  split_windows(one, 300, 50);
  EXPECT_TRUE(one.windows.empty());
}

TEST(WindowGroups, WhereEveryLayerHasAWindowTheLargestIsTheFirstGroup) {
  KvLayout layout = layout_of({8, 16, 8});
  split_windows(layout, 4000, 50);
  EXPECT_EQ(layout.window, 16);
  EXPECT_EQ(layout.most_held, 16 - 1 + 50 + kTokens);
  ASSERT_EQ(layout.windows.size(), 1u);
  EXPECT_EQ(layout.windows[0].window, 8);
  KvLayout alike = layout_of({8, 8});
  split_windows(alike, 4000, 50);
  EXPECT_TRUE(alike.windows.empty());
  EXPECT_EQ(alike.window, 8);
}

TEST(WindowGroups, AllOfThemWhereTheySaveNothing) {
  KvLayout layout = layout_of({8, 0, 100, 400});
  split_all_windows(layout, 400, 300);
  ASSERT_EQ(layout.windows.size(), 2u);
  EXPECT_EQ(layout.windows[0].most_held, 8 - 1 + 300 + kTokens);
  EXPECT_EQ(layout.windows[1].most_held, 400);
  EXPECT_FALSE(layout.layers[3].absent());  // sees all of any stream
  const int64_t each = layout.block_bytes() / kTokens / 2;
  EXPECT_EQ(held_bytes(layout, 50, 350), each * (2 * 50 + 311 + 350));
}

TEST(WindowGroups, DeadBlocksAreBehindTheWindow) {
  EXPECT_EQ(dead_blocks(100, 0, 4), 0);
  EXPECT_EQ(dead_blocks(10, 8, 4), 0);  // sees 3 to 10
  EXPECT_EQ(dead_blocks(11, 8, 4), 1);  // sees 4 to 11
  EXPECT_EQ(dead_blocks(14, 8, 4), 1);
  EXPECT_EQ(dead_blocks(15, 8, 4), 2);
  EXPECT_EQ(dead_blocks(3, 8, 4), 0);
}

TEST(WindowGroups, APoolHasBlocksForTheStreams) {
  KvLayout layout = layout_of({8, 0, 8});
  split_windows(layout, 400, 9);  // 20 tokens, 5 blocks a stream
  KvPoolOptions options{.streams = 3};
  EXPECT_EQ(window_group_blocks(layout.windows[0], 1000, options), 20);
  EXPECT_EQ(window_group_blocks(layout.windows[0], 12, options), 12);
  options.swapped = 2;
  EXPECT_EQ(window_group_blocks(layout.windows[0], 12, options), 22);
  KvPoolOptions evicting = options;
  evicting.evicts = true;  // streams of few blocks in the first group
  EXPECT_EQ(window_group_blocks(layout.windows[0], 12, evicting), 30);
  EXPECT_EQ(kv_pool_bytes(layout, 12, options), 12 * layout.block_bytes() + 22 * layout.windows[0].block_bytes());
  auto pool = KvPool::create(layout, 12, options);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->bytes(), kv_pool_bytes(layout, 12, options));
  EXPECT_EQ(pool->groups(), 2);
  EXPECT_EQ(pool->group_of(0), 1);
  EXPECT_EQ(pool->group_of(1), 0);
  EXPECT_EQ(pool->group(1).total_blocks(), 22);
  EXPECT_EQ(&pool->of(2), &pool->group(1));
  const BlockId a = *pool->group(1).allocate();
  EXPECT_EQ(pool->free_blocks(), 12);
  EXPECT_TRUE(pool->check().ok());
  pool->group(1).release(a);
}

// A window of 6 tokens over blocks of 4: a prefix of n blocks needs the last two.
class PrefixWindows : public ::testing::Test {
 protected:
  static KvPool make_pool() {
    KvLayout layout = layout_of({6, 0});
    split_windows(layout, 4000, 3);                             // 12 tokens, 3 blocks
    return KvPool::create(layout, 40, {.streams = 9}).value();  // 30 of the window
  }
  std::vector<TokenId> tokens(int64_t count) const {
    std::vector<TokenId> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<TokenId>(i * 7 % 50));
    return out;
  }
  // Inserts `blocks` blocks, of the window those from `dead` on, and gives them up.
  void insert(int64_t blocks, int64_t dead) {
    std::vector<BlockId> first, window(static_cast<size_t>(dead), 0);
    for (int64_t i = 0; i < blocks; ++i) first.push_back(*pool_.allocate());
    for (int64_t i = dead; i < blocks; ++i) window.push_back(*pool_.group(1).allocate());
    const std::vector<PrefixBlocks> groups = {{first, 0}, {window, dead}};
    index_.insert_groups(tokens(blocks * kTokens), groups);
    for (const BlockId block : first) pool_.release(block);
    for (auto i = static_cast<size_t>(dead); i < window.size(); ++i) pool_.group(1).release(window[i]);
  }
  // Blocks that a prompt of `count` tokens finds; gives them back.
  int64_t found(int64_t count) {
    PrefixMatch match = index_.match_groups(tokens(count));
    const int64_t needed = std::min<int64_t>(2, std::ssize(match.blocks));
    EXPECT_EQ(match.windows.size(), 1u);
    EXPECT_EQ(match.windows[0].blocks.size(), match.blocks.size());
    EXPECT_EQ(std::ssize(match.windows[0].blocks) - match.windows[0].dead, needed);
    for (const BlockId block : match.blocks) pool_.release(block);
    for (auto i = static_cast<size_t>(match.windows[0].dead); i < match.blocks.size(); ++i)
      pool_.group(1).release(match.windows[0].blocks[i]);
    return std::ssize(match.blocks);
  }

  KvPool pool_ = make_pool();
  PrefixIndex index_{pool_, 0};
};

TEST_F(PrefixWindows, APrefixNeedsTheBlocksOfItsWindow) {
  insert(10, 6);
  EXPECT_EQ(found(40), 10);
  EXPECT_EQ(found(39), 9);
  EXPECT_EQ(found(32), 8);  // blocks 6 and 7
  EXPECT_EQ(found(31), 0);  // 7 blocks would need block 5
  insert(4, 0);             // the same beginning with all its blocks
  EXPECT_EQ(found(31), 4);
  EXPECT_EQ(found(40), 10);
  EXPECT_EQ(index_.window_size(1), 8);
  EXPECT_EQ(index_.size(), 10);
}

TEST_F(PrefixWindows, BlocksOfTheWindowAreEvictedAlone) {
  insert(10, 0);
  EXPECT_EQ(found(40), 10);  // these two are used, the others go first
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(index_.evict_window(1)) << i;
  EXPECT_EQ(index_.window_size(1), 2);
  EXPECT_EQ(found(40), 10);
  EXPECT_TRUE(index_.evict_window(1));
  EXPECT_TRUE(index_.evict_window(1));
  EXPECT_FALSE(index_.evict_window(1));
  EXPECT_EQ(found(40), 0);
  EXPECT_EQ(index_.size(), 10);
  EXPECT_EQ(pool_.group(1).free_blocks(), 30);
}

TEST_F(PrefixWindows, HeldBlocksOfTheWindowStay) {
  insert(3, 0);
  const PrefixMatch held = index_.match_groups(tokens(12));
  ASSERT_EQ(held.blocks.size(), 3u);
  EXPECT_TRUE(index_.evict_window(1));
  EXPECT_FALSE(index_.evict_window(1));
  EXPECT_EQ(index_.evict(40), 0);
  for (const BlockId block : held.blocks) pool_.release(block);
  EXPECT_EQ(index_.evict(40), 3);
  EXPECT_EQ(pool_.group(1).free_blocks(), 28);  // two are held
}

TEST_F(PrefixWindows, AnEvictedBlockTakesItsWindowAlong) {
  insert(10, 0);
  EXPECT_EQ(pool_.group(1).free_blocks(), 20);
  EXPECT_EQ(index_.evict(4), 4);
  EXPECT_EQ(pool_.group(1).free_blocks(), 24);
  EXPECT_EQ(index_.evict(40), 6);
  EXPECT_EQ(pool_.group(1).free_blocks(), 30);
}

TEST_F(PrefixWindows, ABlockThatTheFirstGroupLacksEndsThePrefix) {
  std::vector<BlockId> first = {0, *pool_.allocate()}, window = {0, *pool_.group(1).allocate()};
  const std::vector<PrefixBlocks> groups = {{first, 1}, {window, 1}};
  index_.insert_groups(tokens(8), groups);
  EXPECT_EQ(index_.size(), 0);
  pool_.release(first[1]);
  pool_.group(1).release(window[1]);
}

TEST(KvFormats, KeysAndValuesHaveFormatsOfTheirOwn) {
  const KernelTable kernels = make_kernel_table(Isa::ref);
  const auto formats = find_kv_formats("q8_0:values=f16,window=f32,window_values=bf16", kernels);
  ASSERT_TRUE(formats.ok());
  EXPECT_EQ(formats->keys->name, "q8_0");
  EXPECT_EQ(formats->values->name, "f16");
  EXPECT_EQ(formats->bits_per_value(), 12.25);
  KvLayout layout = formats->layout(4, {{.kv_heads = 1, .head_dim = 32}, {.kv_heads = 1, .head_dim = 32, .window = 8}});
  EXPECT_EQ(layout.format_name(), "q8_0:values=f16");
  EXPECT_EQ(layout.block_bytes(), 2 * 4 * (34 + 64));
  EXPECT_EQ(formats->set_window_formats(layout).error().message,
            "KV format q8_0:values=f16: window: no layers have blocks of their own here; omit it, or give the model a "
            "context that is longer than its layers' window and a step together");
  split_windows(layout, 4000, 10);
  ASSERT_TRUE(formats->set_window_formats(layout).ok());
  EXPECT_EQ(layout.windows[0].format_name(), "f32:values=bf16");
  EXPECT_EQ(layout.windows[0].block_bytes(), 4 * (128 + 64));
  auto pool = KvPool::create(layout, 6);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->row_bytes(0), 34);
  EXPECT_EQ(pool->value_row_bytes(0), 64);
  EXPECT_EQ(pool->values(0, 0, 0) - pool->keys(0, 0, 0), 6 * 4 * 34);
}

// Every group has blocks that suit all codecs, and one slot has the tails of all.
TEST(KvFormats, GroupsHaveCodecsOfTheirOwn) {
  const KernelTable kernels = make_kernel_table(Isa::ref);
  const std::vector<KvLayer> layers = {{.kv_heads = 1, .head_dim = 64}, {.kv_heads = 1, .head_dim = 64, .window = 8}};
  const auto layout_with = [&](const char* text) {
    const auto formats = find_kv_formats(text, kernels);
    EXPECT_TRUE(formats.ok() && formats->encodes()) << text;
    KvLayout layout = formats->layout(4, layers);
    split_windows(layout, 4000, 10);
    EXPECT_TRUE(formats->set_window_formats(layout).ok());
    EXPECT_TRUE(layout.encodes() && layout.check().ok()) << text;
    EXPECT_EQ(layout.windows[0].block_tokens, layout.block_tokens);
    return layout;
  };
  const KvLayout both = layout_with("kivi:bits=2"), full = layout_with("kivi:bits=2,window=f32");
  const KvLayout window = layout_with("f16:window=kivi:bits=4/group=64/residual=64");
  EXPECT_EQ(both.windows[0].codec, both.codec);
  EXPECT_EQ(both.state_values(), (std::vector<int64_t>{2 * 32 * 64, 2 * 32 * 64}));
  EXPECT_EQ(full.windows[0].codec, nullptr);
  EXPECT_EQ(full.windows[0].format->name, "f32");
  EXPECT_EQ(full.block_tokens, 32);
  EXPECT_EQ(full.state_values(), (std::vector<int64_t>{2 * 32 * 64, 0}));
  EXPECT_EQ(window.codec, nullptr);
  EXPECT_EQ(window.windows[0].format_name(), "kivi:bits=4,group=64,residual=64");
  EXPECT_EQ(window.block_tokens, 64);
  EXPECT_EQ(window.state_values(), (std::vector<int64_t>{0, 3 * 64 * 64}));
  EXPECT_TRUE(both.prefixes_shared() && full.prefixes_shared());
  EXPECT_FALSE(window.prefixes_shared());
  auto pool = KvPool::create(window, 6, {.states = 2});
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->states().slot_bytes(), window.state_bytes());
  EXPECT_EQ(pool->group(1).states().slots(), 0);
}

TEST(KvFormats, BlocksSuitBothCodecs) {
  const KernelTable kernels = make_kernel_table(Isa::ref);
  const auto block = [&](const char* text, int64_t tokens) {
    return find_kv_formats(text, kernels)->layout(tokens, {{.kv_heads = 1, .head_dim = 64}}).block_tokens;
  };
  EXPECT_EQ(block("f16", 5), 5);
  EXPECT_EQ(block("kivi:group=32", 33), 64);
  EXPECT_EQ(block("kivi:group=32,window=kivi:group=64", 4), 64);
  EXPECT_EQ(block("f16:window=kivi:group=64", 65), 128);
}

TEST(KvFormats, WrongOnesAreRefused) {
  const KernelTable kernels = make_kernel_table(Isa::ref);
  const auto refused = [&](const char* text) { return find_kv_formats(text, kernels).error().message; };
  EXPECT_EQ(refused("kivi:window_values=f16"),
            "KV format kivi: window_values: needs window, the format of keys, with a codec");
  EXPECT_EQ(refused("f16:window=kivi,window_values=f16"),
            "KV format f16: window: a codec has no window formats of its own");
  EXPECT_EQ(refused("f16:window=kivi:window=f32"), "KV format f16: window: a codec has no window formats of its own");
  EXPECT_EQ(find_kv_formats("q4_k", kernels)->keys, nullptr);
  EXPECT_EQ(find_kv_formats("f16:values=q5", kernels).error().message,
            "KV format f16: values: unknown format 'q5'; available: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, f8_e4m3");
  EXPECT_EQ(find_kv_formats("f16:values=,window=", kernels)->values, find_format("f16"));
  EXPECT_EQ(find_kv_formats("f16:values=,window=", kernels)->window_keys, nullptr);
  EXPECT_EQ(find_kv_formats("f16:keys=q8_0", kernels).error().kind, ErrorKind::user);
  const KvLayout odd = find_kv_formats("f16:values=q8_0", kernels)->layout(4, {{.kv_heads = 1, .head_dim = 40}});
  EXPECT_EQ(odd.check().error().message,
            "KV format q8_0: needs a head size that is a multiple of 32, the model has 40; choose f16, bf16 or f32");
}

}  // namespace
}  // namespace millrace
