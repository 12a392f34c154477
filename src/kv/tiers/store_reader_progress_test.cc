// A load in progress: layers are reported as they arrive, a cancelled load is not continued, and a failed read loses
// only its part. Reads wait at a gate, so that each moment can be tested.
#include <future>
#include <map>

#include "kv/tiers/block_io.h"
#include "kv/tiers/store_reader_test.h"

namespace millrace {
namespace {

// Blocks the read with that number, counted from 1.
struct Gate {
  explicit Gate(SystemCalls& calls, int at) : calls_(calls) {
    calls.read = [this, at](off_t) {
      if (++reads == at) there.set_value(), open.get_future().wait();
      return 0;
    };
  }
  ~Gate() { calls_.read = nullptr; }
  std::atomic<int> reads{0};
  std::promise<void> there, open;

 private:
  SystemCalls& calls_;
};

// Three layers of 128 KiB, one request each.
const std::vector<int64_t> kThree{8192, 8192, 8192};

TEST_F(ReaderTest, LayerIsReadyWhenAllBlocksHaveIt) {
  open(kThree, 4, StoreOrder::arrival, false);
  const std::vector<StoreLoad::Block> blocks{written(2, 0), written(0, 1)};
  for (int at = 1; at <= 6; ++at) {
    Gate gate(calls_, at);
    const auto begin = std::chrono::steady_clock::now();
    const auto going = load(blocks, false);
    gate.there.get_future().wait();
    const int64_t layers = (at - 1) / 2;
    if (layers > 0) reader_->wait_layer(*going, layers - 1, PrefixStore::kNoDeadline);
    reader_->look_at([&] {
      EXPECT_EQ(going->layers, layers) << at;
      EXPECT_FALSE(going->done);
      EXPECT_EQ(going->seconds, 0);
    });
    gate.open.set_value();
    reader_->wait_layer(*going, 2, PrefixStore::kNoDeadline);
    EXPECT_EQ(look(0, 2), "www");
    EXPECT_EQ(look(1, 0), "www");
    reader_->wait_layer(*going, 3, PrefixStore::kNoDeadline);
    EXPECT_EQ(gate.reads, 6);
    EXPECT_GT(going->seconds, 0);
    EXPECT_LE(going->seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}

// A caller that waits for a layer returns before the load ends.
TEST_F(ReaderTest, WaitingForALayerEndsWithTheLayer) {
  open(kThree, 4, StoreOrder::importance, false);
  const std::vector<StoreLoad::Block> blocks{written(1, 0)};
  std::promise<void> first, second;
  int reads = 0;
  calls_.read = [&](off_t) {
    if (++reads == 1) first.get_future().wait();
    if (reads == 2) second.get_future().wait();
    return 0;
  };
  const auto going = load(blocks, false);
  auto waits = std::async(std::launch::async, [&] { reader_->wait_layer(*going, 0, PrefixStore::kNoDeadline); });
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(5)), std::future_status::timeout);
  EXPECT_FALSE(reader_->wait_layer(*going, 0, 0.001)) << "a deadline";
  first.set_value();
  waits.get();
  EXPECT_TRUE(reader_->wait_layer(*going, 0, 0));
  reader_->look_at([&] { EXPECT_EQ(going->layers, 1); });
  EXPECT_EQ(look(0, 1).front(), 'w');
  second.set_value();
  reader_->wait_layer(*going, 3, PrefixStore::kNoDeadline);
  calls_.read = nullptr;
}

TEST_F(ReaderTest, CancelledLoadStopsReading) {
  open(kThree, 4, StoreOrder::arrival, false);
  const std::vector<StoreLoad::Block> blocks{written(0, 0)};
  for (int at = 1; at <= 3; ++at) {
    for (int64_t layer = 0; layer < 3; ++layer)
      copy_in(*pool_, layer, 0, std::vector<uint8_t>(bytes_of(layer), kUntouched).data());
    Gate gate(calls_, at);
    const auto going = load(blocks, false);
    gate.there.get_future().wait();
    reader_->give_up(*going);
    gate.open.set_value();
    reader_->wait_layer(*going, 3, PrefixStore::kNoDeadline);
    EXPECT_EQ(gate.reads, at);
    EXPECT_EQ(look(0, 0),
              std::string(static_cast<size_t>(at - 1), 'w') + std::string(static_cast<size_t>(4 - at), '-'));
    EXPECT_TRUE(going->done);
  }
}

TEST_F(ReaderTest, LoadCancelledBeforeItStartsIsNotRead) {
  open(kThree, 4, StoreOrder::importance, true);
  auto none = std::make_shared<StoreLoad>();
  none->blocks = {written(0, 0), written(1, 1)};
  none->given_up = true;
  reader_->push(none);
  reader_->wait_layer(*none, 3, PrefixStore::kNoDeadline);
  EXPECT_EQ(look(0, 0), "---");
  EXPECT_EQ(none->bad, std::vector<char>(2, 0));
  EXPECT_EQ(load({written(1, 1)})->bad, std::vector<char>(1, 0)) << "the next one is read";
  EXPECT_EQ(look(1, 1), "www");
}

TEST_F(ReaderTest, FailedReadLosesOnlyItsPart) {
  open(kThree, 4, StoreOrder::arrival, false);
  const std::vector<StoreLoad::Block> blocks{written(0, 0), written(1, 1)};
  int reads = 0;
  calls_.read = [&](off_t) { return ++reads == 4 ? EIO : 0; };  // layer by layer: the second one of the second block
  const auto done = load(blocks);
  calls_.read = nullptr;
  EXPECT_EQ(done->bad, (std::vector<char>{0, 1}));
  EXPECT_EQ(look(0, 0), "www");
  EXPECT_EQ(look(1, 1), "w0w");
  EXPECT_EQ(load(blocks)->bad, (std::vector<char>{0, 0}));
}

// At any time, the layers reported as loaded are loaded.
TEST_F(ReaderTest, LayersAreNeverReportedTooEarly) {
  for (const StoreOrder order : {StoreOrder::arrival, StoreOrder::importance}) {
    open(std::vector<int64_t>(12, 8192), 6, order, true);
    const std::vector<StoreLoad::Block> blocks{written(4, 0), written(1, 1)};
    const auto going = load(blocks, false);
    for (bool done = false; !done;) {
      reader_->wait_a_little();
      reader_->look_at([&] {
        done = going->done;
        for (const auto& block : blocks) {
          const std::string seen = look(block.into, block.slot);
          EXPECT_GE(std::ssize(seen) - std::ssize(seen.substr(std::min(seen.size(), seen.find_first_not_of('w')))),
                    going->layers);
        }
      });
    }
    EXPECT_EQ(going->layers, 12);
  }
}

}  // namespace
}  // namespace millrace
