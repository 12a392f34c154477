// UnitStore: weights in memory that is smaller than their file. A unit is what a pass leases at once: a layer, or an
// expert. Units that are kept are read at the start; the others share `capacity` bytes, into which one thread reads
// them, with many reads in flight (kv/tiers/block_io.h) that bypass the page cache where the file system allows it.
//
//   file     | head | layer 0 | layer 1 | layer 2 | ...     | pieces of at most 1 MiB, each with its hash
//   memory   | head |  (none) | layer 1 | reading | ...     the same addresses, reserved once; only units that are
//                                                           in memory have pages, which others had before (MovingPages)
//
//   absent --demanded or expected, when there is room--> reading --all pieces right--> ready --KeepOrder, no lease-->
//   absent
//                                                       |  a read failed, or a hash differs: the waiting pass's error
//                                                       +--> absent
//
// Thread-safe. Units that passes wait for are read before units that are only expected. One pass at a time waits for
// units, and while it waits, others hold only units that they use: so leases end, and the wait does. Deterministic
// results: a unit's bytes are those of the file, or the lease fails.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "kv/tiers/block_io.h"
#include "models/weight_source.h"
#include "models/weight_units/keep_order.h"
#include "models/weight_units/moving_pages.h"
#include "models/weight_units/read_depth.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

class UnitStore {
 public:
  struct Unit {
    std::vector<WeightRange> ranges;
    bool kept = false;
    std::string name;  // for messages
  };
  struct Options {
    int64_t capacity = 0;     // bytes of units that are not kept; at least the largest one
    int64_t group_bytes = 0;  // bytes of the units that begin() takes together, at most; but one unit in any case
    int64_t depth = 16;       // reads in flight; 0: measured while the kept units are read
    double timeout = 60;      // seconds that a pass waits
    bool lock = false;        // kept units are locked in memory
  };

  // Bytes of memory that ranges need.
  static int64_t bytes_of(const std::vector<WeightRange>& ranges);
  // Reads the kept units. Errors: resource (addresses, locked memory, threads), storage, corrupt.
  static Result<std::unique_ptr<UnitStore>> create(WeightFile file, std::vector<Unit> units, const Options& options,
                                                   std::unique_ptr<KeepOrder> order);
  ~UnitStore();
  UnitStore(const UnitStore&) = delete;

  // The address of the packed weights' first byte.
  const uint8_t* packed() const { return memory_.data(); }
  // Leases the first `units`, as many as group_bytes allows, and returns their number. Waits until they are in memory.
  // `next`: units to read afterwards, in addition to the remaining ones; they replace earlier expectations. Errors:
  // internal (a read failed, or a hash differs: no fault of the request, and a later call may succeed).
  Result<int64_t> begin(std::span<const size_t> units, std::span<const size_t> next);
  void end(size_t unit);
  WeightFigures figures() const;
  // The share of the units read ahead lately that passes used, from 0 to 1.
  double right_expectations() const { return right_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { absent, reading, ready };
  struct Extent {  // a range of memory
    int64_t begin = 0, bytes = 0;
  };
  struct Held {
    std::vector<uint32_t> pieces;  // indices into file_.pieces
    std::vector<Extent> extents;
    std::vector<PageRun> pages;  // empty if the unit is kept
    std::string name;
    int64_t bytes = 0, leases = 0;
    size_t started = 0, completed = 0;  // pieces of the present read
    State state = State::absent;
    bool kept = false;
    bool expected = false;         // read before a pass needed it, and not used yet
    int64_t expected_at = 0;       // expectations_ when it was read so
    std::optional<Error> failing;  // error of the present read
    std::optional<Error> error;    // error of the last read, for the pass that waits
  };
  static constexpr double kNewShare = 1.0 / 32;  // share of the newest unit in right_
  struct Flight {
    size_t unit = 0;
    uint32_t piece = 0;
  };

  UnitStore(WeightFile file, const Options& options, std::unique_ptr<KeepOrder> order);
  Result<void> open();
  void add(Unit unit);
  Result<void> read_kept();
  Result<void> lock_kept();
  size_t count_group(std::span<const size_t> units) const;
  void expect(std::span<const size_t> rest, std::span<const size_t> next);
  Result<void> wait_for(std::span<const size_t> units, std::unique_lock<std::mutex>& lock, Clock::time_point until);

  void loop();
  bool next_flight(Flight& out);
  bool start_unit(size_t unit, bool demanded);
  bool make_room(size_t unit, bool demanded);
  void evict(size_t unit);
  void take_pages(Held& unit);
  void give_back_pages(Held& unit);
  std::optional<Error> check(const Flight& flight, bool read) const;
  void complete(const Flight& flight, std::optional<Error> error);
  Error read_error(const Held& unit, const WeightPiece& piece) const;

  WeightFile file_;
  const Options options_;
  int fd_ = -1;
  bool direct_ = false;
  AlignedBuffer memory_;
  std::unique_ptr<BlockIo> io_;
  std::vector<Flight> flights_;  // by tag
  std::vector<uint64_t> free_tags_;
  ReadDepth depth_;
  MovingPages pages_;

  std::timed_mutex turn_;  // held by the pass that waits; taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable work_, changed_;
  std::vector<Held> units_;
  std::unique_ptr<KeepOrder> order_;
  std::deque<size_t> demands_, expected_;  // absent units to be read
  int64_t expectations_ = 0;               // lists of expected units so far
  std::deque<size_t> reading_;             // in the order in which their pieces are started
  int64_t used_ = 0;                       // bytes of units that are not kept
  WeightFigures figures_;
  std::atomic<double> right_{1.0};
  Clock::time_point busy_since_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace millrace
