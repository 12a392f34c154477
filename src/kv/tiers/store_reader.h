// StoreReader: reads blocks from the prefix store's file into the pool, on its own thread. It reads layer by layer over
// all blocks of a load, so the first layers can be used while later ones are still loading. Every part is verified
// against its checksum before any of its bytes reach the pool. If the file packs blocks by importance (store_format.h,
// version 2), one request reads the blocks in adjacent slots; the most important blocks are read first.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kv/tiers/block_io.h"
#include "kv/tiers/store_file.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// One load. Its parameters are const once it is pushed; its progress is guarded by the reader's mutex.
struct StoreLoad {
  struct Block {
    int64_t slot = 0;
    PrefixKey key;
    std::vector<uint64_t> sums;
    BlockId into = -1;
    float importance = 0;
    int64_t piece = -1;  // which piece of the state it is; -1: it is a block
  };
  std::vector<Block> blocks;
  StateId state = -1;  // slot that receives the pieces

  ImagePlace place(const Block& block) const {
    return block.piece < 0 ? ImagePlace(block.into) : ImagePlace(state, block.piece);
  }

  bool given_up = false;
  bool done = false;
  int64_t layers = 0;     // number of leading layers that are in the pool for all blocks, or have failed
  std::vector<char> bad;  // per block
  double seconds = 0;
};

class StoreReader {
 public:
  StoreReader(const StoreFile& file, KvPool& pool, bool uring);
  ~StoreReader();
  bool started() const { return thread_.joinable(); }        // false: the system started no thread; do not use it
  static int64_t most_bytes(const StoreGeometry& geometry);  // maximum size of its buffers

  std::string_view io() const { return io_->name(); }
  void push(std::shared_ptr<StoreLoad> load);
  // Gives the load up. After the return no byte of it reaches the pool.
  void give_up(StoreLoad& load);
  // Runs `look` while no load changes.
  template <typename Look>
  void look_at(Look&& look) {
    std::lock_guard lock(mutex_);
    look();
  }
  // Waits up to `seconds` until the layer is there or has failed; returns whether it is.
  bool wait_layer(const StoreLoad& load, int64_t layer, double seconds);
  void wait_a_little();  // until some load makes progress

 private:
  // Blocks in adjacent slots of one chunk, as indices into run_: [first, end).
  struct Extent {
    size_t first = 0, end = 0;
    float importance = 0;  // the maximum of its blocks
  };
  struct Part {
    size_t extent = 0;
    int64_t first_layer = 0, end_layer = 0;
    int64_t buffer = 0;
  };
  void loop();
  void run(StoreLoad& load);
  void order(const StoreLoad& load);  // fills run_ and extents_
  void start(const StoreLoad& load, size_t extent, size_t group);
  void take_part(StoreLoad& load, const Part& part, bool read);

  const StoreFile& file_;
  KvPool& pool_;
  std::vector<int64_t> cuts_;  // layer boundaries at which a read ends: small parts are read together
  std::unique_ptr<BlockIo> io_;
  int64_t buffer_bytes_ = 0;
  AlignedBuffer buffers_;  // [depth][buffer_bytes]
  std::vector<int64_t> free_buffers_;
  std::vector<Part> parts_;  // in flight, by tag
  std::vector<size_t> run_;  // the current load's blocks, in reading order
  std::vector<Extent> extents_;
  std::vector<size_t> damaged_;  // damaged blocks of one part

  std::mutex mutex_;
  std::condition_variable wake_, moved_;
  bool stop_ = false;
  std::deque<std::shared_ptr<StoreLoad>> queue_;
  std::vector<int64_t> left_;  // number of parts of the current load still missing in each layer group
  std::thread thread_;
};

}  // namespace millrace
