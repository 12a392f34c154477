// MovingPages: units of any sizes, in any order, have pages where they are, which keep what is written; all units
// together never have more than the capacity, whether pages move or not; runs of pages do not become many small ones.
#include "models/weight_units/moving_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace millrace {
namespace {

constexpr int64_t kPage = 4096;

// Bytes of this process's private memory between two addresses that have pages.
int64_t bytes_with_pages(const uint8_t* begin, int64_t bytes) {
  std::vector<unsigned char> pages(static_cast<size_t>(bytes / kPage));
  EXPECT_EQ(mincore(const_cast<uint8_t*>(begin), static_cast<size_t>(bytes), pages.data()), 0);
  return std::ranges::count_if(pages, [](unsigned char one) { return (one & 1) != 0; }) * kPage;
}

struct PagedUnit {
  std::vector<PageRun> places, pages;
  int64_t bytes = 0;
  unsigned char mark = 0;  // 0: not in memory
};

class MovingPagesTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (sysconf(_SC_PAGESIZE) != kPage) GTEST_SKIP() << "pages of other sizes do not move";
  }
  // Units of `sizes`, in turns, of one to three places each, one behind the other.
  void make_units(size_t count, const std::vector<int64_t>& sizes) {
    units_.resize(count);
    int64_t all = 0;
    for (size_t u = 0; u < count; ++u) all += sizes[u % sizes.size()] * static_cast<int64_t>(1 + u % 3);
    auto memory = AlignedBuffer::reserve(all + kPage, "test", false);
    ASSERT_TRUE(memory.ok());
    memory_ = std::move(*memory);
    uint8_t* at = memory_.data() + kPage;  // not at a huge page
    for (size_t u = 0; u < count; ++u) {
      for (size_t i = 0; i <= u % 3; ++i, at += sizes[u % sizes.size()])
        units_[u].places.push_back({at, sizes[u % sizes.size()]});
      units_[u].bytes = sizes[u % sizes.size()] * static_cast<int64_t>(1 + u % 3);
    }
  }
  void fill(PagedUnit& unit, unsigned char mark) {
    unit.mark = mark;
    for (const PageRun& place : unit.places) std::memset(place.begin, mark, static_cast<size_t>(place.bytes));
  }
  static bool is_filled(const PagedUnit& unit) {
    return std::ranges::all_of(unit.places, [&](const PageRun& place) {
      return std::all_of(place.begin, place.begin + place.bytes, [&](uint8_t byte) { return byte == unit.mark; });
    });
  }

  AlignedBuffer memory_;
  std::vector<PagedUnit> units_;
};

TEST_P(MovingPagesTest, AnyOrderKeepsContentsAndTheCapacity) {
  make_units(24, {kPage, 37 * kPage, 200 * kPage, 700 * kPage});
  const int64_t capacity = 2500 * kPage;
  MovingPages pages(capacity + 100);
  if (!GetParam()) pages.stop_moving();
  EXPECT_EQ(pages.name(), GetParam() ? "moved" : "allocated");
  std::mt19937 random(3);
  int64_t used = 0;
  for (int round = 0; round < 600; ++round) {
    PagedUnit& unit = units_[random() % units_.size()];
    if (unit.mark != 0) {
      ASSERT_TRUE(is_filled(unit)) << round;
      pages.put_back(unit.pages);
      EXPECT_TRUE(unit.pages.empty());
      unit.mark = 0;
      used -= unit.bytes;
    } else if (used + unit.bytes <= capacity) {
      pages.take(unit.places, unit.pages);
      used += unit.bytes;
      int64_t bytes = 0;
      for (const PageRun& run : unit.pages) bytes += run.bytes;
      EXPECT_EQ(bytes, unit.bytes);
      EXPECT_LE(unit.pages.size(), 25 * unit.places.size());
      fill(unit, static_cast<unsigned char>(1 + random() % 255));
    }
    if (GetParam() && round == 400) pages.stop_moving();  // as when the system refuses a later move
    EXPECT_LE(bytes_with_pages(memory_.data(), memory_.bytes() / kPage * kPage), capacity);
  }
  for (const PagedUnit& unit : units_) EXPECT_TRUE(unit.mark == 0 || is_filled(unit));
}

// A unit leaves memory and returns: its pages are at their places already, all of them or some.
TEST_P(MovingPagesTest, AUnitMayFindItsOwnPages) {
  make_units(4, {200 * kPage, 50 * kPage});
  MovingPages pages(units_[0].bytes + units_[1].bytes);
  if (!GetParam()) pages.stop_moving();
  for (size_t u : {0, 0, 1, 0, 3, 1, 0, 1, 3, 3, 0}) {
    PagedUnit& unit = units_[u];
    pages.take(unit.places, unit.pages);
    fill(unit, static_cast<unsigned char>(u + 7));
    EXPECT_TRUE(is_filled(unit));
    pages.put_back(unit.pages);
    EXPECT_EQ(pages.name(), GetParam() ? "moved" : "allocated");
  }
}

TEST_P(MovingPagesTest, UnitsOfOneSizePassTheirPagesOn) {
  make_units(12, {300 * kPage});
  int64_t largest = 0;
  for (const PagedUnit& unit : units_) largest = std::max(largest, unit.bytes);
  MovingPages pages(2 * largest);
  if (!GetParam()) pages.stop_moving();
  for (size_t i = 0; i < 200; ++i) {
    if (i >= 2) pages.put_back(units_[(i - 2) % 12].pages);
    PagedUnit& unit = units_[i % 12];
    pages.take(unit.places, unit.pages);
    const int64_t backed = bytes_with_pages(unit.places[0].begin, unit.places[0].bytes);
    EXPECT_EQ(backed, GetParam() ? unit.places[0].bytes : 0);  // no page is allocated when it is written
    fill(unit, static_cast<unsigned char>(1 + i));
    EXPECT_TRUE(is_filled(unit));
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, MovingPagesTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Moved" : "Allocated"; });

}  // namespace
}  // namespace millrace
