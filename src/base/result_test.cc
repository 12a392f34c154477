#include "base/result.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error::user("n: must be even, is " + std::to_string(n));
  return n / 2;
}

Result<int> quarter(int n) {
  MILLRACE_TRY(int h, half(n));
  MILLRACE_TRY(int q, half(h));
  return q;
}

TEST(Result, TryPropagatesValuesAndErrors) {
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().kind, ErrorKind::user);
  EXPECT_EQ(quarter(6).error().message, "n: must be even, is 3");
}

TEST(Result, KindsMapToTheDocumentedExitCodes) {
  EXPECT_EQ(exit_code(ErrorKind::user), 2);
  EXPECT_EQ(exit_code(ErrorKind::corrupt), 3);
  EXPECT_EQ(exit_code(ErrorKind::unsupported), 4);
  EXPECT_EQ(exit_code(ErrorKind::resource), 5);
  EXPECT_EQ(exit_code(ErrorKind::internal), 1);
  EXPECT_EQ(exit_code(ErrorKind::cancelled), 1);
}

}  // namespace
}  // namespace millrace
