// StoreWriter: puts blocks into the prefix store's file, on a thread of its own. Blocks that arrive while a batch is
// being written make the next batch, so that the two syncs of a batch are shared (store_format.h says why they are).
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
    bool dirty = false;   // the slot's record on disk is another block's
    bool check = false;   // the block is stored, with record.sums: to be written only where its bytes do not pass them
    StoreRecord record;   // without the sums, but for a check
    AlignedBuffer bytes;  // the slot's, as they will lie in the file
  };
  struct Written {
    int64_t slot = 0;
    bool ok = false;
    bool was_stored = false;  // a check it was
    bool was_whole = false;   // ... that found nothing to do
    std::vector<uint64_t> sums;
  };

  StoreWriter(const StoreFile& file, int64_t buffers, bool uring);
  ~StoreWriter();  // after all that was pushed is written

  std::string_view io() const { return io_->name(); }
  // Memory for a slot's bytes, zeros behind each part; without data when all of it is on its way to the disk.
  AlignedBuffer take(bool wait);
  bool has_room();  // take() would give some now
  void give_back(AlignedBuffer bytes);
  void push(Job job);
  void collect(std::vector<Written>& out);  // what has ended since the last call

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
  std::vector<char> ok_;     // of the batch
  std::vector<char> whole_;  // ... what a check found to be so: not written
  AlignedBuffer read_;       // a slot's parts, to be checked

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
