// BackgroundPacker: packs a model's matrices on separate threads while the model already runs, so that the first token
// waits for neither the packing nor the memory that it fills.
//
//   load    | plan |                                                     no matrix has been read
//   passes         | first: slices of stored rows | slices and packed matrices | packed matrices only ...
//   packer         |  waits                       | q | k | v | output | ...   |
//
// A matrix is used in its packed form from the moment it is complete (PackingState); until then linear() packs and
// multiplies slices of the stored rows, which gives the same bits. Packing pauses during the model's first pass, which
// needs all cores. NaN and infinity, which loading would have refused, are found by the packer or by the first product
// that reads them; from then on failure() has the error, and every request must fail with it.
//
// While both forms exist the stored one is in this process's memory, too, as far as passes have read it; the packer
// releases it piece by piece behind itself. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/memory_accounts.h"
#include "models/weight_packer.h"

namespace millrace {

class BackgroundPacker {
 public:
  struct Work {
    WeightPacker packer;        // its weights and files must outlive the BackgroundPacker
    uint8_t* packed = nullptr;  // packer.packed_bytes(), zeroed
    // states of the weights that packs_later() accepts; the weights point to them
    std::unique_ptr<PackingState[]> states;
    MemoryHold stored;  // the stored form in memory
    std::shared_ptr<const ModelFiles> files;
    int threads = 1;
  };
  explicit BackgroundPacker(Work work);
  // Call once, before the first pass. Errors: resource (the system starts no thread); nothing may use it then.
  Result<void> start();
  // Stops within a piece of about a megabyte. No pass may run.
  ~BackgroundPacker();
  BackgroundPacker(const BackgroundPacker&) = delete;

  // Around every pass of the model.
  void begin_pass();
  void end_pass();

  // Everything is checked and packed, or found damaged.
  bool complete() const { return complete_.load(std::memory_order_acquire); }
  // Errors: corrupt (the first damage found; names the file, the tensor and the row).
  Result<void> failure() const;
  // Waits until complete(). Errors: as failure().
  Result<void> finish();
  // A row of a tied embedding, which is read without a product.
  void check_row(const Weight& weight, int64_t row);

 private:
  void run();
  bool goes_on();
  void fail(const Error& error);

  Work work_;
  std::atomic<bool> complete_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> error_;
  bool stop_ = false, hurry_ = false;
  int64_t running_ = 0, ended_ = 0;  // passes
  std::chrono::steady_clock::time_point first_pass_;
  std::thread thread_;
};

}  // namespace millrace
