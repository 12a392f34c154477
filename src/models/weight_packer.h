// WeightPacker: packs a model's matrices from its files into one block of memory, in the layouts that the kernels read.
//
//   files    | embedding | q | k | v | ... |          mapped, read once from front to end, then released
//                          |   |   |  pieces of about a megabyte, any thread: check for NaN, pack
//   packed   | q | k | v | ... |                      one buffer in huge pages; each Weight views its part
//
// Pieces are processed in file order, so that disk and page cache stream; every few pieces the pages already packed are
// released. So memory never holds more than the packed weights and some megabytes of the files.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/linear.h"
#include "loader/model_files.h"
#include "tensor/weight.h"

namespace millrace {

// Advice where the packed weights do not fit in memory.
inline constexpr const char* kWeightsAdvice =
    "choose a smaller model or format, or --use weights=mapped or weights=stream, which read layers from the packed "
    "cache as they are needed";

class WeightPacker {
 public:
  static constexpr int64_t kWidestWindow = int64_t{1} << 40;  // wide enough for full speed
  static constexpr int64_t kNarrowestWindow = int64_t{32} << 20;

  struct Planned {
    Weight* weight = nullptr;        // null: a table, which is checked but not packed
    const Weight* stored = nullptr;  // the matrix in the files; another than `weight` if its format changes
    int64_t bytes = 0;               // packed
    int64_t offset = 0;              // in the packed memory

    bool converted() const { return weight && weight != stored; }
  };

  // `files` must hold the weights' data and outlive the packer, as must the weights.
  WeightPacker(const ModelFiles& files, const KernelTable& table) : files_(files), table_(table) {}

  // Plans a matrix. Errors: as plan_packing(), corrupt (a separate scale is not finite).
  Result<void> add(Weight& weight);
  // Plans a matrix whose rows the files have in another format, as `stored`: they are decoded, and rounded to nearest
  // in weight.format, when they are packed. check_convertible() has accepted them. `stored` must outlive the packer.
  // Errors: as add(weight).
  Result<void> add(Weight& weight, const Weight& stored);
  // Adds a matrix that is read in place.
  Result<void> add_table(const Weight& weight);
  // Called after the last add: assigns offsets, in file order.
  void arrange();

  int64_t packed_bytes() const { return packed_bytes_; }
  const std::vector<Planned>& planned() const { return planned_; }  // in the order of add()

  // Checks and packs everything. `progress` receives the fraction done, on the calling thread; may be null. Errors:
  // corrupt (NaN or infinity; reports the first weight that was added), resource. At most about `window` bytes of the
  // files are in memory at a time.
  Result<AlignedBuffer> pack(ThreadPool& pool, const std::function<void(double)>& progress,
                             int64_t window = kWidestWindow) const;
  // Packs into `packed`, packed_bytes() of a mapped file that is being written; packed pages are released from this
  // process's memory.
  Result<void> pack_into(uint8_t* packed, ThreadPool& pool, const std::function<void(double)>& progress,
                         int64_t window) const;
  // Maximum bytes of the files in memory while packing within `window`: all of a matrix that is stored transposed.
  int64_t most_in_memory(int threads, int64_t window) const;
  // Part of the work, while the model may already run.
  struct Job {
    bool (*takes)(const Planned& planned) = nullptr;  // null: everything
    std::function<bool()> goes_on;                    // asked before each piece; false: the rest is left out
    std::function<void(const Planned&)> done;         // all of it is checked and packed
    std::function<void(const Error&)> failed;         // before done()
    std::function<void(double)> progress;             // on the calling thread
    int64_t window = kWidestWindow;
    bool release_packed = false;  // for a mapped file that is being written
  };
  // Into `packed`, packed_bytes() of memory. The functions are called on the threads of `pool`; each may be null.
  Result<void> pack_job(uint8_t* packed, ThreadPool& pool, const Job& job) const;
  // Packs rows [begin, end) of a planned matrix. `begin`: a multiple of the kernel's row_tile. `packed`: destination of
  // the whole matrix.
  static void pack_rows(const Planned& planned, int64_t begin, int64_t end, uint8_t* packed);
  // Makes every weight's `packed` a view of its part of `packed`, which must outlive them. `later`, where not null, has
  // a state for each weight that packs_later() accepts, in the order of planned(): these keep their stored data.
  void point_weights(const uint8_t* packed, PackingState* later = nullptr) const;
  // Bytes in the files of the matrices that packs_later() accepts.
  int64_t stored_bytes() const;

 private:
  struct Stretch;
  struct Piece;
  std::vector<Piece> cut(bool (*takes)(const Planned&)) const;
  int64_t stretch_bytes(int threads, int64_t window) const;
  Result<void> pack_piece(const Piece& piece, uint8_t* packed) const;
  void release_packed(uint8_t* packed, const Piece& piece) const;
  const ModelFiles& files_;
  const KernelTable& table_;
  std::vector<Planned> planned_;
  int64_t packed_bytes_ = 0;
};

// Returns true if packing can wait until the model runs: for a matrix that linear() multiplies as it is stored.
inline bool packs_later(const WeightPacker::Planned& planned) {
  return planned.weight && !planned.converted() && multiplies_stored(*planned.weight);
}

// "corrupt" error if a value or scale in rows [begin, end) is NaN or infinite; separate scales are not checked.
Result<void> check_rows_finite(const Weight& weight, int64_t begin, int64_t end);

}  // namespace millrace
