#include "base/enum_table.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

enum class Hidden { one, two, three };
enum class Small : uint8_t { none, x9, _y, Z };
enum class Shifted : uint8_t { first = 1, second = 2 };
struct Owner {
  enum class Kind { only };
};

// A table of the wrong size does not compile, which can only be tested through the count.
static_assert(kEnumerators<Hidden> == 3);
static_assert(kEnumerators<Small> == 4);
static_assert(kEnumerators<Owner::Kind> == 1);
static_assert(enum_detail::count<Shifted>() == 0);
static_assert(kAllOf<Small>[3] == Small::Z);

constexpr EnumNames<Hidden> kHidden("a", "b", "c");
static_assert(kHidden.find("b") == Hidden::two);

TEST(EnumTable, NamesRoundTrip) {
  for (Hidden e : kAllOf<Hidden>) EXPECT_EQ(kHidden.find(kHidden[e]), e);
  EXPECT_EQ(kHidden.find("d"), std::nullopt);
  EXPECT_EQ(kHidden.find(""), std::nullopt);
}

TEST(EnumTable, FindEnumerator) {
  EXPECT_EQ(find_enumerator<Hidden>(2), Hidden::three);
  for (int64_t value : {int64_t{3}, int64_t{-1}, int64_t{63}, int64_t{64}, INT64_MAX, INT64_MIN})
    EXPECT_EQ(find_enumerator<Hidden>(value), std::nullopt) << value;
  EXPECT_EQ(find_enumerator<Shifted>(0), std::nullopt);
  EXPECT_EQ(find_enumerator<Shifted>(1), Shifted::first);
  EXPECT_EQ(find_enumerator<Shifted>(3), std::nullopt);
}

TEST(EnumTable, TableEntries) {
  EnumTable<Small, double> sums;
  sums[Small::Z] += 2;
  double all = 0;
  for (double sum : sums) all += sum;
  EXPECT_EQ(all, 2);
  EXPECT_EQ(sums[Small::none], 0);
}

}  // namespace
}  // namespace millrace
