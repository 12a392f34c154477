#include "kernels/kernel_table.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// A build for one processor leaves superseded versions out, so none of their kernels may be the best one.
TEST(KernelTable, VersionsThatLaterOnesReplaceAddNothing) {
  for (const Isa isa : isa_variants()) {
    SCOPED_TRACE(isa_name(isa));
    const KernelTable best = make_kernel_table(isa);
    const KernelTable all = make_kernel_table(isa, Superseded::added);
    EXPECT_TRUE(best.matmul == all.matmul);
    EXPECT_TRUE(best.codebooks == all.codebooks);
    EXPECT_TRUE(best.attention == all.attention);
    EXPECT_TRUE(best.mixed_attention == all.mixed_attention);
    EXPECT_TRUE(best.codecs == all.codecs);
    EXPECT_TRUE(best == all);
  }
}

}  // namespace
}  // namespace millrace
