// LoraRows: which rows of a batch use which adapters, and the scratch for their products. Part of a ForwardContext;
// set() before a batch is run. A batch without adapters costs one check of an empty list.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

struct ArchSpec;
struct LoraUse;
using LoraMix = std::vector<LoraUse>;

struct LoraRows {
  static constexpr int64_t kRows = 64;  // processed together: rows are independent, so this changes no bit

  struct Run {
    int64_t begin = 0;  // row of the batch
    int64_t count = 0;
    const LoraMix* mix = nullptr;
  };
  std::vector<Run> runs;  // ascending; rows without adapters are in no run

  AlignedBuffer rounded;  // input rows as f32 activations
  AlignedBuffer inner;    // [kRows, rank]
  AlignedBuffer product;  // [kRows, rows of the widest matrix]

  bool empty() const { return runs.empty(); }
  // Additional bytes that reserve() would allocate.
  int64_t wanted(const ArchSpec& spec, int64_t rank) const;
  // Makes room for adapters of that rank. Errors: resource.
  Result<void> reserve(const ArchSpec& spec, int64_t rank);
  // Reduces the batch to these rows of the old one, ascending.
  void keep(std::span<const int32_t> rows);

 private:
  std::vector<Run> kept_;
  int64_t rank_ = 0;
};

}  // namespace millrace
