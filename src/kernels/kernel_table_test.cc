#include "kernels/kernel_table.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// A build for one processor leaves superseded versions out, so none of their kernels may be the best one.
TEST(KernelTable, VersionsThatLaterOnesReplaceAddNothing) {
  for (const Isa isa : isa_variants()) {
    SCOPED_TRACE(isa_name(isa));
    EXPECT_TRUE(make_kernel_table(isa) == make_kernel_table(isa, Superseded::added));
  }
}

}  // namespace
}  // namespace millrace
