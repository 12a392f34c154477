// StreamRotations: the principal components of the residual stream over a calibration text, before each block or for
// all blocks together. One run over the text measures the second moments of all blocks that fit into the memory. Not
// thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "compress/factorizers/symmetric_eigen.h"
#include "compress/structural_pass.h"

namespace millrace {

class StreamRotations {
 public:
  // `kept`: number of components of each rotation. `each_block`: false: one rotation for the model. `work` must outlive
  // this object.
  StreamRotations(const StructuralWork& work, int64_t kept, bool each_block)
      : work_(work), kept_(kept), each_block_(each_block) {}

  bool each_block() const { return each_block_; }

  // Returns the rotation of the next block. The order is: attention and MLP of the first layer, of the second layer,
  // ..., and the head. Without each_block(), returns the same object each time. Errors: resource, unsupported
  // (activations that are not finite).
  Result<std::shared_ptr<const EigenPairs>> next();

 private:
  int64_t blocks() const { return each_block_ ? 2 * work_.spec.layer_count() + 1 : 1; }
  Result<void> measure();
  Result<std::shared_ptr<const EigenPairs>> rotation(std::vector<double> moments) const;

  const StructuralWork& work_;
  int64_t kept_;
  bool each_block_;
  int64_t block_ = 0;                         // index of the next block
  std::vector<std::vector<double>> moments_;  // [width, width] of each block from block_ on
  MemoryHold memory_;
  std::shared_ptr<const EigenPairs> only_;  // the model's rotation, if not each_block_
};

}  // namespace millrace
