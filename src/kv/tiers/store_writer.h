// StoreWriter: writes blocks to the prefix store's file, on its own thread. Blocks that arrive while a batch is being
// written form the next batch, so that its two syncs are shared (store_format.h explains them).
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "kv/tiers/block_io.h"
#include "kv/tiers/store_file.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

class StoreWriter {
 public:
  struct Job {
    int64_t slot = 0;
    bool dirty = false;   // the slot's record on disk belongs to another block
    bool check = false;   // the block is stored, with record.sums: written only if its bytes do not match them
    StoreRecord record;   // without the sums, except for a check
    AlignedBuffer bytes;  // the slot's bytes, as laid out in the file
  };
  struct Written {
    int64_t slot = 0;
    bool ok = false;
    bool was_stored = false;  // it was a check
    bool was_whole = false;   // ... that found the block intact
    std::vector<uint64_t> sums;
  };

  StoreWriter(const StoreFile& file, int64_t buffers, bool uring);
  bool started() const { return thread_.joinable(); }  // false: the system started no thread; do not use it
  ~StoreWriter();                                      // writes all that was pushed first

  std::string_view io() const { return io_->name(); }
  // A buffer for a slot's bytes, with zeros behind each part; without data if all buffers are in use.
  AlignedBuffer take(bool wait);
  bool has_room(int64_t buffers = 1);  // take() would succeed that many times now
  void give_back(AlignedBuffer bytes);
  void push(Job job);
  void collect(std::vector<Written>& out);  // appends the blocks whose writes have completed since the last call

 private:
  void loop();
  void write(std::vector<Job>& jobs);
  // Writes the pieces; a piece whose tag names job i sets ok_[i] to false when it fails.
  void run(std::span<const IoPiece> pieces);
  bool sync_or_fail();
  bool is_whole(const Job& job);  // reads the slot
  void write_parts(std::vector<Job>& jobs);

  const StoreFile& file_;
  int64_t most_buffers_;
  std::unique_ptr<BlockIo> io_;
  AlignedBuffer records_;  // [most_buffers][record_bytes]
  std::vector<IoPiece> pieces_;
  std::vector<char> ok_;     // result of each block of the batch
  std::vector<char> whole_;  // ... blocks that a check found intact: not written
  AlignedBuffer read_;       // a slot's parts, for checks

  std::mutex mutex_;
  std::condition_variable wake_, room_;
  bool stop_ = false;
  int64_t buffers_made_ = 0;
  std::vector<AlignedBuffer> free_;
  std::vector<Job> queue_;
  std::vector<Written> written_;
  std::thread thread_;
};

}  // namespace millrace
