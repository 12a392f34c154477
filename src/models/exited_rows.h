// ExitedRows: the rows that have left a forward pass before its last layer (exit/exit_gate.h), and the batch of the
// rows that stay. Part of ForwardContext; blocks/early_exit.cc fills it.
//
//   residual   [ rows that stay | free | output rows that have left, the last one first ]
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "flow/batch.h"

namespace millrace {

struct ExitedRows {
  int64_t rows = 0;              // rows of the whole pass
  std::vector<int32_t> outputs;  // output rows of the whole pass
  std::vector<int32_t> left;     // indices into `outputs` of the rows that have left, in the order of leaving
  std::vector<int32_t> staying;  // indices into `outputs` of the output rows that stay, ascending
  bool parted = false;           // some row has left

  // Batches of the rows that stay; the second exit of a pass reads one and fills the other.
  std::array<Batch, 2> batches;
  Batch joined;  // the output rows of the whole pass
  std::vector<uint8_t> stops;
  std::vector<int32_t> kept;  // rows of the batch that stay

  bool any() const { return parted; }
  void clear() {
    parted = false;
    left.clear();
  }
};

}  // namespace millrace
