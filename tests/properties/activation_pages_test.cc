// The pages of a pass's buffers: small until a pass has many rows, and the same results.
#if defined(__linux__)
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <numeric>

#include "model_runner.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kPage = 4096;

int64_t resident_bytes(const AlignedBuffer& buffer) {
  std::vector<unsigned char> pages(static_cast<size_t>((buffer.bytes() + kPage - 1) / kPage));
  EXPECT_EQ(mincore(const_cast<uint8_t*>(buffer.data()), static_cast<size_t>(buffer.bytes()), pages.data()), 0);
  return kPage * std::accumulate(pages.begin(), pages.end(), int64_t{0},
                                 [](int64_t sum, unsigned char page) { return sum + (page & 1); });
}

TEST(ActivationPages, SmallUntilAPassHasManyRows) {
  constexpr int64_t kTokens = 100;
  auto large = TestRunner::load(golden_model("llama3"), {.max_tokens = 1 << 15});
  auto small = TestRunner::load(golden_model("llama3"), {.max_tokens = kTokens});
  ASSERT_TRUE(large.ok() && small.ok());
  const AlignedBuffer& residual = (*large)->context().residual;
  ASSERT_GE(residual.bytes(), 2 * kHugePageBytes);
  std::vector<TokenId> tokens(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) tokens[i] = static_cast<TokenId>(i * 7 % (*large)->model().spec().vocab);
  // A first pass over one token, whose row stays where it is when the pages change.
  (*large)->step(std::span(tokens).first(1), 0);
  EXPECT_LT(resident_bytes(residual), kHugePageBytes);
  EXPECT_EQ((*large)->logits(tokens), (*small)->logits(tokens));
}

}  // namespace
}  // namespace millrace
#endif
