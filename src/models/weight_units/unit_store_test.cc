// UnitStore: any interleaving of leases, reads ahead, evictions and failed reads, by several threads, gives the bytes
// of the file or an error; memory stays within its bound; errors name what failed, and a later lease may succeed.
#include "models/weight_units/unit_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

namespace millrace {
namespace {

constexpr int64_t kPayload = 8192, kPiece = 16384;

// Faults that are injected into one of `every` reads; 0: none.
struct Faults {
  enum Kind { fails, cuts, damages };
  std::atomic<int64_t> every{0}, reads{0}, injected{0};
  std::atomic<int> kind{fails};
  std::atomic<int64_t> delay_us{0};
  std::atomic<bool> together{false};   // reads complete when all in flight do
  std::atomic<int64_t> most_taken{0};  // that one call of wait() took from the disk
};

class FaultyIo final : public BlockIo {
 public:
  FaultyIo(std::unique_ptr<BlockIo> io, Faults& faults) : io_(std::move(io)), faults_(faults) {}
  std::string_view name() const override { return io_->name(); }
  int64_t depth() const override { return io_->depth(); }
  void start(const IoPiece& piece) override {
    pieces_.push_back(piece);
    io_->start(piece);
  }
  int64_t wait(std::span<IoDone> done) override {
    if (faults_.delay_us > 0) usleep(static_cast<useconds_t>(faults_.delay_us));
    const int64_t count = faults_.together ? wait_for_all(done) : io_->wait(done);
    faults_.most_taken = std::max<int64_t>(faults_.most_taken, count);
    for (IoDone& one : done.first(static_cast<size_t>(count))) {
      const auto piece = std::ranges::find(pieces_, one.tag, &IoPiece::tag);
      if (faults_.every > 0 && ++faults_.reads % faults_.every == 0) inject(*piece, one);
      pieces_.erase(piece);
    }
    return count;
  }

 private:
  int64_t wait_for_all(std::span<IoDone> done) {
    IoDone one;
    while (held_.size() < pieces_.size() && io_->wait({&one, 1}) > 0) held_.push_back(one);
    const size_t count = std::min(done.size(), held_.size());
    std::copy_n(held_.begin(), count, done.begin());
    held_.erase(held_.begin(), held_.begin() + static_cast<int64_t>(count));
    return static_cast<int64_t>(count);
  }

  void inject(const IoPiece& piece, IoDone& done) {
    ++faults_.injected;
    if (faults_.kind == Faults::damages) piece.data[piece.bytes / 2] ^= 1;
    if (faults_.kind == Faults::cuts) std::fill_n(piece.data + piece.bytes / 2, piece.bytes / 2, uint8_t{0});
    done.ok = done.ok && faults_.kind == Faults::damages;
  }

  std::unique_ptr<BlockIo> io_;
  Faults& faults_;
  std::vector<IoPiece> pieces_;
  std::vector<IoDone> held_;
};

// The file's units are leased in the order of use.
class OldestOrder final : public KeepOrder {
 public:
  explicit OldestOrder(size_t units) : last_(units) {}
  void used(size_t unit, bool) override { last_[unit] = ++now_; }
  double worth(size_t unit) const override { return static_cast<double>(last_[unit]); }

 private:
  std::vector<int64_t> last_;
  int64_t now_ = 0;
};

class UnitStoreTest : public ::testing::Test {
 protected:
  static constexpr size_t kUnits = 12;

  // Units of one to three matrices of different lengths; those of the last unit are kept.
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("unit_store_test." + std::to_string(getpid()))).string();
    std::mt19937 random(7);
    bytes_.assign(kPayload, 'h');
    for (size_t u = 0; u < kUnits; ++u) {
      UnitStore::Unit unit{{}, u + 1 == kUnits, "unit " + std::to_string(u)};
      for (size_t m = 0; m <= u % 3; ++m) {
        const auto begin = std::ssize(bytes_);
        const auto length = static_cast<int64_t>(1 + random() % 40000);
        for (int64_t i = 0; i < length; ++i) bytes_.push_back(static_cast<char>(random()));
        bytes_.resize((bytes_.size() + 4095) / 4096 * 4096);
        unit.ranges.push_back({begin, length, ""});
        for (int64_t at = begin; at < std::ssize(bytes_); at += kPiece) {
          const int64_t piece = std::min(kPiece, std::ssize(bytes_) - at);
          pieces_.push_back({at, piece, XXH3_64bits(bytes_.data() + at, static_cast<size_t>(piece))});
        }
      }
      largest_ = std::max(largest_, UnitStore::bytes_of(unit.ranges));
      units_.push_back(unit);
    }
    write();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void write() { std::ofstream(path_, std::ios::binary) << bytes_; }

  Result<std::unique_ptr<UnitStore>> make(UnitStore::Options options) {
    auto mapped = MappedFile::open(path_);
    EXPECT_TRUE(mapped.ok());
    WeightFile file{*mapped, kPayload, pieces_};
    file.io = [this](int fd, int64_t depth) {
      return std::make_unique<FaultyIo>(make_block_io(fd, depth, uring_), faults_);
    };
    return UnitStore::create(std::move(file), units_, options, std::make_unique<OldestOrder>(kUnits));
  }
  bool is_right(const UnitStore& store, size_t unit) const {
    for (const WeightRange& range : units_[unit].ranges)
      if (std::memcmp(store.packed() + range.begin - kPayload, bytes_.data() + range.begin,
                      static_cast<size_t>(range.bytes)) != 0)
        return false;
    return true;
  }
  // At most `most` bytes are in memory. Counts again if there seem to be more: a page that the reader moves to a higher
  // address meanwhile is counted twice.
  void expect_resident(const UnitStore& store, int64_t most) const {
    int64_t bytes = resident(store);
    for (int i = 0; i < 1000 && bytes > most; ++i) {
      usleep(1000);
      bytes = resident(store);
    }
    EXPECT_LE(bytes, most);
  }
  // Bytes of the store's addresses that have memory.
  int64_t resident(const UnitStore& store) const {
    const int64_t page = sysconf(_SC_PAGESIZE), bytes = std::ssize(bytes_) - kPayload;
    std::vector<unsigned char> pages(static_cast<size_t>((bytes + page - 1) / page));
    EXPECT_EQ(mincore(const_cast<uint8_t*>(store.packed()), static_cast<size_t>(bytes), pages.data()), 0);
    return std::ranges::count_if(pages, [](unsigned char one) { return (one & 1) != 0; }) * page;
  }
  // Leases groups of units as passes do, and counts errors and wrong bytes.
  void run_pass(UnitStore& store, uint32_t seed, int rounds, std::atomic<int64_t>& failed,
                std::atomic<int64_t>& wrong) {
    std::mt19937 random(seed);
    for (int i = 0; i < rounds; ++i) {
      std::vector<size_t> group, next;
      for (size_t u = 0; u < kUnits; ++u) {
        if (random() % 4 == 0) group.push_back(u);
        if (random() % 5 == 0) next.push_back(u);
      }
      for (size_t done = 0; done < group.size();) {
        const auto leased = store.begin(std::span(group).subspan(done), next);
        if (!leased.ok()) {
          ++failed;
          break;
        }
        for (size_t g = done; g < done + static_cast<size_t>(*leased); ++g) wrong += !is_right(store, group[g]);
        for (size_t g = done; g < done + static_cast<size_t>(*leased); ++g) store.end(group[g]);
        done += static_cast<size_t>(*leased);
      }
    }
  }

  std::string path_, bytes_;
  std::vector<UnitStore::Unit> units_;
  std::vector<WeightPiece> pieces_;
  int64_t largest_ = 0;
  bool uring_ = true;
  Faults faults_;
};

TEST_F(UnitStoreTest, AnyInterleavingGivesTheBytesOfTheFile) {
  for (const bool uring : {true, false}) {
    uring_ = uring;
    for (const int64_t capacity : {largest_, 2 * largest_, 100 * largest_}) {
      for (const auto kind : {Faults::fails, Faults::cuts, Faults::damages}) {
        for (const int64_t every : {0, 7}) {
          // A new store: a read ahead of the phase before may still be under way, with its fault.
          faults_.every = 0;
          auto store = make({.capacity = capacity, .group_bytes = capacity / 2, .depth = 4});
          ASSERT_TRUE(store.ok()) << store.error().message;
          faults_.kind = kind;
          faults_.every = every;
          std::atomic<int64_t> failed{0}, wrong{0};
          std::vector<std::thread> passes;
          for (uint32_t seed = 0; seed < 3; ++seed)
            passes.emplace_back([&, seed] { run_pass(**store, seed, 40, failed, wrong); });
          for (std::thread& pass : passes) pass.join();
          EXPECT_EQ(wrong, 0);
          if (every == 0) {
            EXPECT_EQ(failed, 0);
          }
          const WeightFigures figures = (*store)->figures();
          EXPECT_GT(figures.hits, 0);
          EXPECT_GT(figures.misses, 0);
          EXPECT_GE(figures.prefetched, figures.prefetched_used);
          if (sysconf(_SC_PAGESIZE) == 4096) expect_resident(**store, capacity + figures.kept_bytes);
        }
      }
    }
  }
  EXPECT_GT(faults_.injected, 0);
}

TEST_F(UnitStoreTest, AFailureEndsOneLeaseAndIsNamed) {
  auto store = make({.capacity = 2 * largest_, .group_bytes = largest_});
  ASSERT_TRUE(store.ok());
  const auto message = [&](size_t unit) {
    const auto leased = (*store)->begin({{unit}}, {});
    return leased.ok() ? std::string() : leased.error().message;
  };
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != text.npos; };
  faults_.every = 1;
  EXPECT_TRUE(has(message(3), path_ + ": cannot read unit 3, bytes ")) << message(3);
  faults_.kind = Faults::damages;
  EXPECT_TRUE(has(message(3), "unit 3 is damaged between bytes ")) << message(3);
  faults_.every = 0;
  EXPECT_EQ(message(3), "");
  EXPECT_TRUE(is_right(**store, 3));
  (*store)->end(3);
  EXPECT_GE((*store)->figures().failed, 2);
  // The file shrinks while it is in use, and is whole again.
  std::filesystem::resize_file(path_, kPayload + 4096);
  EXPECT_TRUE(has(message(8), "the file has only 12288 bytes now")) << message(8);
  write();
  EXPECT_EQ(message(8), "");
  EXPECT_TRUE(is_right(**store, 8));
  (*store)->end(8);
}

// A disk that completes all reads together must not be idle while they are checked.
TEST_F(UnitStoreTest, EveryReadIsReplacedBeforeTheNextIsChecked) {
  faults_.together = true;
  auto store = make({.capacity = 100 * largest_, .group_bytes = 100 * largest_, .depth = 4});
  ASSERT_TRUE(store.ok()) << store.error().message;
  std::atomic<int64_t> failed{0}, wrong{0};
  run_pass(**store, 1, 20, failed, wrong);
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(faults_.most_taken, 1);
}

TEST_F(UnitStoreTest, ADiskThatIsTooSlowIsAnError) {
  auto store = make({.capacity = 2 * largest_, .group_bytes = largest_, .timeout = 0.02});
  ASSERT_TRUE(store.ok());
  faults_.delay_us = 200000;
  const auto late = (*store)->begin({{size_t{2}}}, {});
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().message.find("weights of unit 2 were not read within"), std::string::npos)
      << late.error().message;
  faults_.delay_us = 0;
  for (int i = 0; i < 200; ++i) {
    if ((*store)->begin({{size_t{2}}}, {}).ok()) break;
    usleep(10000);
  }
  EXPECT_TRUE(is_right(**store, 2));
}

TEST_F(UnitStoreTest, DamageOfKeptUnitsEndsTheStart) {
  bytes_[static_cast<size_t>(units_.back().ranges[0].begin)] ^= 1;
  write();
  const auto store = make({.capacity = largest_, .group_bytes = largest_});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().kind, ErrorKind::corrupt);
}

TEST_F(UnitStoreTest, ReadsAheadWhatIsExpected) {
  auto store = make({.capacity = 100 * largest_, .group_bytes = largest_});
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->begin({{size_t{0}}}, {{size_t{1}, size_t{2}}}).ok());
  for (int i = 0; i < 30000 && (*store)->figures().reads < 3; ++i) usleep(2000);
  ASSERT_EQ((*store)->figures().reads, 3);
  ASSERT_TRUE((*store)->begin({{size_t{1}}}, {}).ok());
  const WeightFigures figures = (*store)->figures();
  EXPECT_EQ(figures.hits, 1);
  EXPECT_EQ(figures.misses, 1);
  EXPECT_EQ(figures.prefetched, 2);
  EXPECT_EQ(figures.prefetched_used, 1);
}

}  // namespace
}  // namespace millrace
