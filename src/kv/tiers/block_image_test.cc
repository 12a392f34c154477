// The image of a block: it round-trips, its bytes are frozen, and no other bytes pass for it.
#include "kv/tiers/block_image.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kv/tiers/block_runs.h"

namespace millrace {
namespace {

constexpr StoreIdentity kImageModel{3, 4};

struct ImagePool {
  KvPool pool = std::move(*KvPool::create({find_format("f16"), 4, {{2, 8}, {1, 16}, {1, 8}}}, 3));
  ImageShape shape = ImageShape::of(pool.layout());

  void fill(BlockId block, uint8_t value) {
    for (int64_t layer = 0; layer < shape.layers(); ++layer)
      copy_in(pool, layer, block,
              std::vector<uint8_t>(static_cast<size_t>(shape.part_bytes[static_cast<size_t>(layer)]),
                                   static_cast<uint8_t>(value + layer))
                  .data());
  }
  std::vector<uint8_t> image_of(const ChainLink& link, BlockId block) {
    std::vector<uint8_t> image(static_cast<size_t>(shape.image_bytes()));
    copy_parts_out(pool, block, shape, image);
    StoreRecord record;
    record.key = link.key;
    record.parent = link.parent;
    record.tokens.assign(link.tokens.begin(), link.tokens.end());
    seal_image(shape, kImageModel, record, image);
    return image;
  }
};

const std::vector<TokenId> image_tokens = {1, 2, 3, 4, 5, 6, 7, 8};

TEST(BlockImage, RoundTrips) {
  ImagePool one;
  const auto chain = prefix_chain(image_tokens, 4, 0);
  one.fill(0, 40);
  const auto image = one.image_of(chain[1], 0);
  EXPECT_EQ(one.shape.part_bytes, (std::vector<int64_t>{256, 256, 128}));
  EXPECT_EQ(one.shape.head_bytes(), 64 + 4 * 4 + 3 * 8);
  EXPECT_EQ(std::ssize(image), 104 + 640);
  EXPECT_EQ(image[104], 40);
  EXPECT_EQ(image[104 + 256], 41);
  EXPECT_EQ(image.back(), 42);
  ASSERT_TRUE(is_image_of(chain[1], one.shape, kImageModel, image));
  one.fill(1, 7);
  copy_parts_in(one.pool, 1, one.shape, image);
  EXPECT_EQ(one.image_of(chain[1], 1), image);
}

// An image has the same bytes as a record of a file, except that its sum has another seed.
TEST(BlockImage, ItsHeadIsARecordWithoutAPlace) {
  ImagePool one;
  const auto chain = prefix_chain(image_tokens, 4, 0);
  one.fill(0, 40);
  const auto image = one.image_of(chain[0], 0);
  EXPECT_EQ(std::memcmp(image.data(), "BLK1", 4), 0);
  StoreRecord record;
  const std::span head(image.data(), static_cast<size_t>(one.shape.head_bytes()));
  EXPECT_EQ(decode_record(one.shape, kImageModel, kNoPlace, head, record), RecordState::good);
  EXPECT_EQ(record.tokens, (std::vector<TokenId>{1, 2, 3, 4}));
  EXPECT_EQ(record.sums.size(), 3u);
  EXPECT_EQ(decode_record(one.shape, kImageModel, 0, head, record), RecordState::bad) << "a slot of a file";
  EXPECT_EQ(decode_record(one.shape, kImageModel, kNoPlace, head.first(103), record), RecordState::bad);
  EXPECT_EQ(decode_record(one.shape, kImageModel, kNoPlace, std::vector<uint8_t>(104), record), RecordState::empty);
}

TEST(BlockImage, NoOtherBytesPassForIt) {
  ImagePool one;
  const auto chain = prefix_chain(image_tokens, 4, 0), elsewhere = prefix_chain(image_tokens, 4, 1);
  const auto image = one.image_of(chain[0], 0);
  for (size_t at = 0; at < image.size(); ++at) {
    auto changed = image;
    changed[at] ^= static_cast<uint8_t>(1 << at % 8);
    EXPECT_FALSE(is_image_of(chain[0], one.shape, kImageModel, changed)) << at;
  }
  auto longer = image;
  longer.push_back(0);
  EXPECT_FALSE(is_image_of(chain[0], one.shape, kImageModel, longer));
  EXPECT_FALSE(is_image_of(chain[0], one.shape, kImageModel, std::span(image).first(image.size() - 1)));
  EXPECT_FALSE(is_image_of(chain[0], one.shape, kImageModel, {}));
  EXPECT_FALSE(is_image_of(chain[0], one.shape, {3, 5}, image)) << "another model";
  EXPECT_FALSE(is_image_of(chain[1], one.shape, kImageModel, image)) << "another block";
  EXPECT_FALSE(is_image_of(elsewhere[0], one.shape, kImageModel, image)) << "another tenant";
  const std::vector<TokenId> other = {1, 2, 3, 5};
  EXPECT_FALSE(is_image_of({chain[0].key, chain[0].parent, other}, one.shape, kImageModel, image));
}

}  // namespace
}  // namespace millrace
