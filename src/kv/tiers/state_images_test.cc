// Images of recurrent states: pieces of a block's size that round-trip and are never mistaken for other images.
#include <fmt/format.h>

#include <set>

#include "kv/tiers/recurrent_pool_test.h"

namespace millrace {
namespace {

constexpr StoreIdentity kStateModel{3, 4};
const std::vector<TokenId> state_tokens = {1, 2, 3, 4, 5, 6, 7, 8};

std::vector<uint8_t> state_image(KvPool& pool, const ImageShape& shape, const ChainLink& link,
                                 const ImagePlace& place) {
  std::vector<uint8_t> image(static_cast<size_t>(shape.image_bytes()), 0xee);
  copy_parts_out(pool, place, shape, image);
  StoreRecord record;
  record.key = link.key;
  record.parent = link.parent;
  record.tokens.assign(link.tokens.begin(), link.tokens.end());
  seal_image(shape, kStateModel, record, image);
  return image;
}

TEST(StateImages, AStateIsDividedIntoPiecesOfABlocksSize) {
  const KvPool pool = hybrid_pool();
  const ImageShape shape = ImageShape::of(pool.layout());
  EXPECT_EQ(shape.part_bytes, (std::vector<int64_t>{0, 256, 0}));
  EXPECT_EQ(shape.state_bytes, 448 + 256) << "whole cache lines";
  EXPECT_EQ(shape.state_pieces(), 3);
  EXPECT_FALSE(shape.empty_blocks);
  const ImageShape plain = ImageShape::of({find_format("f16"), kStateBlock, {{2, 8}}});
  EXPECT_EQ(plain.state_pieces(), 0);
}

TEST(StateImages, BlocksWithoutBytesHaveAnImageAllTheSame) {
  KvPool pool = recurrent_pool();
  const ImageShape shape = ImageShape::of(pool.layout());
  EXPECT_EQ(shape.part_bytes, (std::vector<int64_t>{16384, 0}));
  EXPECT_EQ(shape.state_pieces(), 2);
  EXPECT_TRUE(shape.empty_blocks);
  const auto chain = prefix_chain(state_tokens, kStateBlock, 0);
  const auto image = state_image(pool, shape, chain[0], BlockId{3});
  EXPECT_TRUE(is_image_of(chain[0], shape, kStateModel, image));
  EXPECT_TRUE(std::all_of(image.begin() + shape.head_bytes(), image.end(), [](uint8_t byte) { return byte == 0; }));
  fill_state(pool, 3, 7);
  copy_parts_in(pool, BlockId{3}, shape, image);
  EXPECT_TRUE(state_is(pool, 3, 7)) << "nothing is written";
}

TEST(StateImages, PiecesRoundTrip) {
  for (const bool hybrid : {true, false}) {
    KvPool pool = hybrid ? hybrid_pool() : recurrent_pool();
    const ImageShape shape = ImageShape::of(pool.layout());
    const auto chain = prefix_chain(state_tokens, kStateBlock, 0);
    fill_state(pool, 1, 5);
    fill_state(pool, 2, 6);
    fill_state(pool, 3, 6);
    for (int64_t i = 0; i < shape.state_pieces(); ++i) {
      const StatePiece piece(chain[0].key, i, kStateBlock);
      const auto image = state_image(pool, shape, piece.link(), {1, i});
      ASSERT_TRUE(is_image_of(piece.link(), shape, kStateModel, image)) << i;
      EXPECT_FALSE(is_image_of(chain[1], shape, kStateModel, image)) << i;
      copy_parts_in(pool, {2, i}, shape, image);
      EXPECT_EQ(state_is(pool, 2, 5), i + 1 == shape.state_pieces()) << i;
    }
    EXPECT_TRUE(state_is(pool, 3, 6)) << "the slot behind it";
  }
}

TEST(StateImages, EveryPieceHasItsOwnKey) {
  for (const int64_t block_tokens : {1, 4}) {
    const auto chain = prefix_chain(state_tokens, block_tokens, 0);
    std::set<std::pair<uint64_t, uint64_t>> keys;
    for (const ChainLink& link : chain) {
      keys.emplace(link.key.low, link.key.high);
      for (int64_t i = 0; i < 100; ++i) {
        const StatePiece piece(link.key, i, block_tokens);
        EXPECT_EQ(piece.link().parent, link.key);
        EXPECT_EQ(piece.link().key, next_key(link.key, piece.link().tokens));
        EXPECT_EQ(std::ssize(piece.link().tokens), block_tokens);
        EXPECT_TRUE(std::ranges::all_of(piece.link().tokens, [](TokenId one) { return one < 0 && one != kFillToken; }));
        keys.emplace(piece.link().key.low, piece.link().key.high);
      }
    }
    EXPECT_EQ(keys.size(), chain.size() * 101);
  }
}

// A state of other sizes has other bytes in the same blocks; layouts without states keep their text.
TEST(StateImages, TheIdentityNamesTheStates) {
  const auto text = [](int64_t first, int64_t second) {
    return identity_text({find_format("f16"), kStateBlock, {{2, 8, first}, {2, 8, second}}}, "m");
  };
  EXPECT_NE(text(100, 50), text(50, 100));
  EXPECT_NE(text(100, 50), text(0, 0));
  EXPECT_EQ(text(0, 0), "KV f16 in blocks of 4 tokens, 2 layers: 2 of 2x8\nm");
}

}  // namespace
}  // namespace millrace
