// StoreScan: reads the records of a prefix store's file, from the first slot on, on a thread of its own, so that nobody
// has to wait for the whole of a large file before the engine starts. Whoever takes what was read fills an index with
// it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kv/tiers/store_file.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

class StoreScan {
 public:
  struct Found {
    std::vector<std::pair<int64_t, StoreRecord>> records;  // slot and what it holds, ascending
    int64_t slots = 0;                                     // all slots below were read
    int64_t bad = 0;                                       // records that did not pass their sums
    bool failed = false;                                   // the file cannot be read any further
  };

  explicit StoreScan(const StoreFile& file);
  ~StoreScan();  // leaves the rest unread

  // Waits until all is read, but no longer than that. Whether it is.
  bool wait(double seconds);
  // What was read since the last call.
  Found take();

 private:
  void loop();
  bool read(int64_t first, int64_t count);  // into the buffer

  const StoreFile& file_;
  AlignedBuffer buffer_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool stop_ = false, done_ = false;
  Found found_;
  std::thread thread_;
};

}  // namespace millrace
