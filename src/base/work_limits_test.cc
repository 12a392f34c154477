#include "base/work_limits.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

TEST(WorkLimits, ApplyToTheirThreadWhileTheScopeLives) {
  EXPECT_FALSE(work_is_over()) << "without a scope nothing is limited";
  std::atomic<bool> left{false};
  {
    const WorkScope scope({.cancelled = &left, .until = {}});
    EXPECT_TRUE(check_work().ok());
    left = true;
    EXPECT_TRUE(work_is_over());
    EXPECT_EQ(check_work().error().kind, ErrorKind::cancelled);
    bool other = true;
    std::thread([&] { other = work_is_over(); }).join();
    EXPECT_FALSE(other);
    {
      const WorkScope inner({.cancelled = nullptr, .until = std::chrono::steady_clock::now()});
      EXPECT_EQ(check_work().error().kind, ErrorKind::resource);
    }
    EXPECT_EQ(check_work().error().kind, ErrorKind::cancelled) << "the outer scope again";
  }
  EXPECT_FALSE(work_is_over());
}

}  // namespace
}  // namespace millrace
