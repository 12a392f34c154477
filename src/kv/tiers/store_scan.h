// StoreScan: reads the records of a prefix store's file, starting at the first slot, on its own thread, so that the
// engine can start before a large file is scanned. The caller adds the results to an index.
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
    std::vector<std::pair<int64_t, StoreRecord>> records;  // slot and its record, ascending
    int64_t slots = 0;                                     // all slots below have been read
    int64_t bad = 0;                                       // records with a wrong checksum
    bool failed = false;                                   // the rest of the file cannot be read
  };

  explicit StoreScan(const StoreFile& file);
  ~StoreScan();  // abandons the rest of the scan

  bool started() const { return thread_.joinable(); }  // false: the system started no thread, and nothing is read
  // Waits up to `seconds` until the scan is complete; returns whether it is.
  bool wait(double seconds);
  // Records read since the last call.
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
