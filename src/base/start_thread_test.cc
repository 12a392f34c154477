#include "base/start_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace millrace {
namespace {

TEST(StartThread, RunsTheWork) {
  std::atomic<int> ran{0};
  auto started = start_thread("test", [&] { ++ran; });
  ASSERT_TRUE(started.ok());
  started->join();
  EXPECT_EQ(ran, 1);
}

TEST(StartThread, AnExceptionEndsTheThreadAndNotTheProcess) {
  auto started = start_thread("test", [] { throw std::runtime_error("lost"); });
  ASSERT_TRUE(started.ok());
  started->join();
}

TEST(StartThread, ARefusedThreadIsAnErrorThatNamesItsWork) {
  std::atomic<int> ran{0};
  {
    const ThreadShortage shortage(1);
    auto first = start_thread("first", [&] { ++ran; });
    ASSERT_TRUE(first.ok());
    first->join();
    for (int i = 1; i <= 2; ++i) {
      const auto refused = start_thread("download", [&] { ++ran; });
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().kind, ErrorKind::resource);
      EXPECT_NE(refused.error().message.find("download"), std::string::npos) << refused.error().message;
      EXPECT_EQ(shortage.refused(), i);
    }
  }
  auto later = start_thread("later", [&] { ++ran; });
  ASSERT_TRUE(later.ok()) << "the shortage is over";
  later->join();
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace millrace
