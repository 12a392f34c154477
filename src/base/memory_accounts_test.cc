#include "base/memory_accounts.h"

#include <gtest/gtest.h>

#include <utility>

namespace millrace {
namespace {

TEST(MemoryAccounts, ErrorListsAllAccounts) {
  MemoryAccounts accounts(1'000'000'000);
  ASSERT_TRUE(accounts.take("weights", 700'000'000, "").ok());
  ASSERT_TRUE(accounts.take("cache", 200'000'000, "").ok());
  auto refused = accounts.take("cache", 100'000'001, "request less");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  EXPECT_EQ(refused.error().message,
            "memory: cache needs 100.0 MB, but only 100.0 MB of the budget of 1.00 GB is left; in use: weights "
            "700.0 MB, cache 200.0 MB; request less");
  EXPECT_EQ(accounts.total(), 900'000'000);
  EXPECT_TRUE(accounts.take("cache", 100'000'000, "").ok());
  EXPECT_EQ(accounts.left(), 0);
}

TEST(MemoryAccounts, PeaksSurviveRelease) {
  auto accounts = std::make_shared<MemoryAccounts>(100);
  {
    auto hold = MemoryHold::take(accounts, "window", 80, "");
    ASSERT_TRUE(hold.ok());
    EXPECT_FALSE(MemoryHold::take(accounts, "window", 21, "").ok());
    MemoryHold moved = std::move(*hold);
    EXPECT_EQ(accounts->left(), 20);
  }
  EXPECT_EQ(accounts->left(), 100);
  ASSERT_EQ(accounts->list().size(), 1u);
  EXPECT_EQ(accounts->list()[0].bytes, 0);
  EXPECT_EQ(accounts->list()[0].peak, 80);
}

TEST(MemoryAccounts, WithoutBudgetEverythingFitsAndIsCounted) {
  auto accounts = std::make_shared<MemoryAccounts>();
  ASSERT_TRUE(accounts->take("weights", int64_t{1} << 60, "").ok());
  EXPECT_EQ(accounts->left(), INT64_MAX);
  EXPECT_EQ(accounts->total(), int64_t{1} << 60);
  EXPECT_FALSE(accounts->take("weights", -1, "").ok());
  EXPECT_TRUE(MemoryHold::take(nullptr, "weights", 5, "").ok());
}

TEST(MemoryAccounts, SharedBudget) {
  auto shared = std::make_shared<MemoryAccounts>(1'000'000'000);
  auto first = std::make_shared<MemoryAccounts>(shared, "first");
  {
    MemoryAccounts second(shared, "second");
    ASSERT_TRUE(first->take("weights", 600'000'000, "").ok());
    ASSERT_TRUE(second.take("weights", 300'000'000, "").ok());
    EXPECT_EQ(first->left(), 100'000'000);
    EXPECT_EQ(second.budget(), 1'000'000'000);
    EXPECT_EQ(second.total(), 300'000'000);
    auto refused = second.take("cache", 100'000'001, "request less");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "cache: memory: second needs 100.0 MB, but only 100.0 MB of the budget of 1.00 GB is left; in use: "
              "first 600.0 MB, second 300.0 MB; request less");
    EXPECT_EQ(second.total(), 300'000'000);
  }
  EXPECT_EQ(first->left(), 400'000'000) << "the destructor releases everything";
  first->give_back("weights", 600'000'000);
  EXPECT_EQ(shared->total(), 0);
}

TEST(MemoryAccounts, ParseBytes) {
  const std::pair<const char*, int64_t> good[] = {{"0", 0},
                                                  {"123", 123},
                                                  {"1B", 1},
                                                  {"8G", int64_t{8} << 30},
                                                  {"8g", int64_t{8} << 30},
                                                  {"8GiB", int64_t{8} << 30},
                                                  {"8GB", 8'000'000'000},
                                                  {"1.5K", 1536},
                                                  {"2 MiB", 2 << 20},
                                                  {"3T", int64_t{3} << 40},
                                                  {"0.5kb", 500}};
  for (const auto& [text, bytes] : good) {
    auto read = parse_bytes(text);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_EQ(*read, bytes) << text;
  }
  for (const char* text : {"", "G", "-1", "-1G", "8X", "8GG", "8GiBs", "1e30", "nan", "inf", "8 G B",
                           "99999999999999999999T", "0x10", "."}) {
    auto read = parse_bytes(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().kind, ErrorKind::user) << text;
  }
}

}  // namespace
}  // namespace millrace
