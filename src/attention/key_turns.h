// KeyTurnTables: sines and cosines of each layer for keys that a codec stores before RoPE (KeyTurns). Layers with the
// same rotation share a table. Const after create().
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// The rotation of a layer's keys by their positions. Without frequencies, the keys are not rotated.
struct KeyRope {
  std::vector<double> frequencies;
  bool half = false;  // as KernelTable::rope
};

class KeyTurnTables {
 public:
  // `ropes`: by layer. `context`: maximum number of tokens of a stream. Errors: resource.
  static Result<KeyTurnTables> create(std::span<const KeyRope> ropes, int64_t block_tokens, int64_t context);
  static int64_t bytes(std::span<const KeyRope> ropes, int64_t block_tokens, int64_t context);

  int64_t bytes() const { return memory_.bytes(); }
  // Returns the layer's table; without pairs if `ropes` has no such layer.
  const KeyTurns& of(int64_t layer) const;

 private:
  AlignedBuffer memory_;
  std::vector<KeyTurns> turns_;  // by layer
};

}  // namespace millrace
