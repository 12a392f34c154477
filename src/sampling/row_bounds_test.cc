// A row and a mask are parts of larger buffers: memory before and after them is neither read nor written.
#include <gtest/gtest.h>

#include <limits>

#include "sampling/row.h"

namespace millrace {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kBeside = 12345.0f;  // a logit that would win
constexpr uint64_t kAll = ~uint64_t{0};

// A row of n logits 0, 1, 2, ... with finite numbers on both sides.
class Neighbours {
 public:
  explicit Neighbours(size_t n) : buffer_(n + 2 * kMargin, kBeside) {
    for (size_t i = 0; i < n; ++i) row()[i] = static_cast<float>(i);
  }
  std::span<float> row() { return std::span(buffer_).subspan(kMargin, buffer_.size() - 2 * kMargin); }
  bool untouched() const {
    for (size_t i = 0; i < kMargin; ++i)
      if (buffer_[i] != kBeside || buffer_[buffer_.size() - 1 - i] != kBeside) return false;
    return true;
  }

 private:
  static constexpr size_t kMargin = 128;
  std::vector<float> buffer_;
};

std::vector<TokenId> tokens_of(SamplingRow& row) {
  std::vector<TokenId> out;
  for (const auto& candidate : row.candidates()) out.push_back(candidate.token);
  return out;
}

using Ids = std::vector<TokenId>;

TEST(RowBounds, KeepTokensSkipsIdsOutsideTheRow) {
  Neighbours memory(10);
  SamplingRow row;
  row.begin(memory.row(), 0, 0);
  row.keep_tokens(Ids{-1, 0, 4, 9, 10, 11});
  EXPECT_EQ(tokens_of(row), (Ids{0, 4, 9}));
}

TEST(RowBounds, ForceAcceptsFirstAndLastToken) {
  Neighbours memory(10);
  SamplingRow row;
  for (TokenId token : {-7, -1, 0, 1, 9, 10, 11}) {
    row.begin(memory.row(), 0, 0);
    row.force(token);
    const bool known = token >= 0 && token <= 9;
    EXPECT_EQ(tokens_of(row), known ? Ids{token} : Ids{}) << token;
    if (known) {
      EXPECT_EQ(row.max_logit(), 0.0f) << "a single candidate: its logit does not matter";
    }
  }
}

TEST(RowBounds, MasksEndWithTheirLastWordForRowsAndLists) {
  const uint64_t words[] = {0b101, kAll};  // the second belongs to the next mask
  const auto mask = std::span(words).first(1);
  Neighbours memory(130);
  SamplingRow row;
  row.begin(memory.row(), 0, 0);
  row.keep_bits(mask);
  EXPECT_EQ(tokens_of(row), (Ids{0, 2}));
  row.begin(memory.row(), 0, 0);
  row.keep_tokens(Ids{0, 1, 2, 63, 64, 100, 129});
  row.keep_bits(mask);
  EXPECT_EQ(tokens_of(row), (Ids{0, 2}));
}

TEST(RowBounds, MasksMayBeWiderThanTheRow) {
  const uint64_t words[] = {kAll, kAll};
  Neighbours memory(66);
  SamplingRow row;
  row.begin(memory.row(), 0, 0);
  row.keep_bits(words);
  ASSERT_EQ(row.candidates().size(), 66u);
  EXPECT_EQ(row.max_logit(), 65.0f);
  EXPECT_TRUE(memory.untouched());
}

// Up to 4096 kept tokens become a list; with more, the other tokens are masked in the dense row.
TEST(RowBounds, MasksOfManyTokensLeaveTheRowDense) {
  Neighbours memory(5000);
  std::vector<uint64_t> words(79, 0);
  for (size_t token = 0; token < 4096; ++token) words[token / 64] |= uint64_t{1} << (token % 64);
  SamplingRow row;
  row.begin(memory.row(), 0, 0);
  row.keep_bits(words);
  EXPECT_FALSE(row.dense());
  EXPECT_EQ(row.candidates().size(), 4096u);
  words[70] |= 2;
  row.begin(memory.row(), 0, 0);
  row.keep_bits(words);
  EXPECT_TRUE(row.dense());
  EXPECT_EQ(row.candidates().size(), 4097u);
}

// Words of every density in turn; the row ends within a word, with bits set beyond its end.
void strike(size_t width, size_t mask_words) {
  SCOPED_TRACE(width);
  const uint64_t kinds[] = {kAll,       kAll - 1,           0x8000000000000001, 0,        0xFFFFFFFF,
                            0x7FFFFFFF, 0xAAAAAAAAAAAAAAAA, ~uint64_t{1} << 40, kAll >> 1};
  std::vector<uint64_t> words(mask_words + 4, kAll);  // more masks follow
  for (size_t i = 0; i < mask_words; ++i) words[i] = i < 64 ? kAll : kinds[i % std::size(kinds)];
  Neighbours memory(width);
  SamplingRow row;
  row.begin(memory.row(), 0, 0);
  row.keep_bits(std::span(words).first(mask_words));
  ASSERT_TRUE(row.dense());
  for (size_t i = 0; i < width; ++i) {
    const bool kept = i / 64 < mask_words && (words[i / 64] >> (i % 64) & 1) != 0;
    ASSERT_EQ(memory.row()[i], kept ? static_cast<float>(i) : kNone) << i;
  }
  EXPECT_TRUE(memory.untouched());
}

TEST(RowBounds, MaskingLeavesKeptLogitsAndNeighboursUnchanged) {
  for (size_t words = 80; words < 92; ++words) {
    strike(64 * words, words);
    for (size_t bits : {1, 20, 33, 63}) strike(64 * (words - 1) + bits, words);
    strike(64 * words + 7, words);    // wider than the mask
    strike(64 * words + 200, words);  // ... by more than a word
  }
}

}  // namespace
}  // namespace millrace
