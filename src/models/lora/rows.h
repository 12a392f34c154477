// LoraRows: which rows of a batch use which adapters, and the scratch for the adapters' products, which are added to
// the products of the model's own matrices. Set before a batch is run; it is a hook of the pass only while some row
// uses an adapter.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "models/forward_hooks.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

struct ArchSpec;
struct LoraUse;
using LoraMix = std::vector<LoraUse>;

struct LoraRows final : LinearWrapper {
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
  bool wraps(const LinearId& id) const override { return id.expert < 0; }  // routed experts have no adapters
  // y += scale * B (A x) for the rows that use adapters of the matrix.
  void apply(const LinearCall& call) override;
  void keep(std::span<const int32_t> rows) override;
  void part() override { parted_ = runs; }
  void rejoin(std::span<const int32_t> rows) override {
    restore();
    keep(rows);
  }
  void restore() { runs = parted_; }  // to the runs at the last part()

 private:
  std::vector<Run> kept_;
  std::vector<Run> parted_;  // runs at the last part()
  int64_t rank_ = 0;
};

}  // namespace millrace
