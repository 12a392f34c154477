// KeyTurnTables: sines and cosines for keys that a codec stores before RoPE (KeyTurns), of each layer. Layers with the
// same rotation share theirs. Const after create().
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

// How the keys of a layer were rotated by their positions; no frequencies: they were not.
struct KeyRope {
  std::vector<double> frequencies;
  bool half = false;  // as KernelTable::rope
};

class KeyTurnTables {
 public:
  // `ropes`: by layer, in streams of up to `context` tokens. Errors: resource.
  static Result<KeyTurnTables> create(std::span<const KeyRope> ropes, int64_t block_tokens, int64_t context);
  static int64_t bytes(std::span<const KeyRope> ropes, int64_t block_tokens, int64_t context);

  int64_t bytes() const { return memory_.bytes(); }
  // No pairs where the layer is not among the ropes.
  const KeyTurns& of(int64_t layer) const;

 private:
  AlignedBuffer memory_;
  std::vector<KeyTurns> turns_;  // by layer
};

}  // namespace millrace
