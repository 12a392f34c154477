// Leases on weights: each ends once; mapped weights stay in memory until the last lease on them ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/choose.h"
#include "models/weight_source.h"

namespace millrace {
namespace {

class CountedSource final : public WeightSource {
 public:
  std::map<std::pair<int64_t, int32_t>, int> open;
  int64_t fails_at = -1;

 private:
  Result<void> begin(WeightUnit of) override {
    if (of.layer == fails_at) return Error::corrupt("layer " + std::to_string(of.layer));
    ++open[{of.layer, of.expert}];
    return {};
  }
  void end(WeightUnit of) override { --open[{of.layer, of.expert}]; }
};

TEST(WeightLease, EndsOnceAlsoWhenMoved) {
  CountedSource source;
  const std::pair<int64_t, int32_t> layer{3, WeightUnit::kNoExpert}, expert{3, 7};
  {
    WeightLease first = *source.acquire({3});
    WeightLease moved = std::move(first);
    EXPECT_EQ(source.open[layer], 1);
    moved = *source.acquire({3, 7});
    EXPECT_EQ(source.open[layer], 0);
    EXPECT_EQ(source.open[expert], 1);
    std::vector<WeightLease> many;
    for (int i = 0; i < 10; ++i) many.push_back(*source.acquire({3, 7}));
    EXPECT_EQ(source.open[expert], 11);
    many.clear();
    EXPECT_EQ(source.open[expert], 1);
  }
  EXPECT_EQ(source.open[layer], 0);
  EXPECT_EQ(source.open[expert], 0);
  { const WeightLease resident; }
}

TEST(WeightLease, AFailedOneHasTheErrorAndHoldsNothing) {
  CountedSource source;
  source.fails_at = 5;
  EXPECT_TRUE(source.acquire({4}).ok());
  const auto failed = source.acquire({5});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "layer 5");
  std::vector<WeightLease> leases;
  const int32_t experts[] = {1, 2};
  EXPECT_FALSE(source.acquire_experts(5, experts, {}, leases).ok());
  EXPECT_TRUE(leases.empty());
  EXPECT_EQ(*source.acquire_experts(4, experts, {}, leases), 2);
  EXPECT_EQ(leases.size(), 2u);
  leases.clear();
  for (const auto& [unit, count] : source.open) EXPECT_EQ(count, 0);
}

// A mapped file of three layers, of which the second also has two experts. Each of these units has 8 MiB, so that what
// the system maps around a page that is read does not reach the middle of another unit.
class MappedLeases : public ::testing::Test {
 protected:
  using Units = std::vector<int64_t>;
  static constexpr int64_t kBytes = int64_t{8} << 20;

  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("weight_lease_test." + std::to_string(getpid()))).string();
    std::ofstream(path_, std::ios::binary) << 'w';
    std::filesystem::resize_file(path_, 5 * kBytes);
    auto opened = MappedFile::open(path_);
    ASSERT_TRUE(opened.ok());
    file_ = *opened;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<WeightSource> make(const std::string& text) {
    WeightPlaces places;
    places.layers = {{{{0, kBytes}}, {}},
                     {{{kBytes, kBytes}}, {{{3 * kBytes, kBytes}}, {{4 * kBytes, kBytes}}}},
                     {{{2 * kBytes, kBytes}}, {}}};
    const auto chosen = choose_member("weights", weight_sources(), text);
    EXPECT_TRUE(chosen.ok());
    auto placed = chosen->member.make({.mapped = file_, .pieces = {}}, places, chosen->options, 0);
    EXPECT_TRUE(placed.ok());
    return std::move(placed->source);
  }
  // Reads a byte of every page of a unit.
  void read(int64_t unit) const {
    int64_t sum = 0;
    for (int64_t at = unit * kBytes; at < (unit + 1) * kBytes; at += 4096)
      sum += file_->bytes()[static_cast<size_t>(at)];
    EXPECT_EQ(sum, unit == 0 ? 'w' : 0);
  }
  // The units whose middle is in this process's memory.
  Units resident() const {
    const int pages = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    Units found;
    for (int64_t unit = 0; unit < 5; ++unit) {
      uint64_t entry = 0;
      const auto page = reinterpret_cast<uintptr_t>(file_->bytes().data() + unit * kBytes + kBytes / 2) / 4096;
      EXPECT_EQ(pread(pages, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)), sizeof entry);
      if (entry >> 63) found.push_back(unit);  // present
    }
    close(pages);
    return found;
  }

  std::string path_;
  std::shared_ptr<const MappedFile> file_;
};

TEST_F(MappedLeases, ALayerStaysUntilItsLastLeaseEnds) {
  const auto source = make("mapped:ahead=0");
  WeightLease first = *source->acquire({0});
  {
    const WeightLease second = *source->acquire({0});
    read(0);
  }
  EXPECT_EQ(resident(), Units({0}));
  first = {};
  EXPECT_EQ(resident(), Units());
}

TEST_F(MappedLeases, ExpertsAreReleasedWithoutTheirLayer) {
  const auto source = make("mapped:ahead=0");
  const WeightLease layer = *source->acquire({1});
  read(1);
  {
    const WeightLease a = *source->acquire({1, 0}), b = *source->acquire({1, 1});
    read(3);
    read(4);
    EXPECT_EQ(resident(), Units({1, 3, 4}));
  }
  EXPECT_EQ(resident(), Units({1}));
}

TEST_F(MappedLeases, PinnedLayersStayAndSoDoesAModelThatIsReadAheadWhole) {
  const auto pinned = make("mapped:ahead=0,pinned=2");
  for (int64_t layer : {0, 1, 2}) {
    const WeightLease lease = *pinned->acquire({layer});
    read(layer);
  }
  EXPECT_EQ(resident(), Units({0, 1}));
  const auto whole = make("mapped:ahead=2");
  for (int64_t layer : {0, 1, 2}) {
    const WeightLease lease = *whole->acquire({layer});
    read(layer);
  }
  EXPECT_EQ(resident(), Units({0, 1, 2}));
}

}  // namespace
}  // namespace millrace
