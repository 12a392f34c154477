// StreamRotations: the principal components of the residual stream over a calibration text, before each block or of all
// blocks together. The second moments of as many blocks as the memory holds are measured in one run over the text. Not
// thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "compress/factorizers/symmetric_eigen.h"
#include "compress/structural_pass.h"

namespace millrace {

class StreamRotations {
 public:
  // `kept`: components of each rotation. Without `each_block` there is one for the model. `work` must outlive this.
  StreamRotations(const StructuralWork& work, int64_t kept, bool each_block)
      : work_(work), kept_(kept), each_block_(each_block) {}

  bool each_block() const { return each_block_; }

  // Rotation of the next block: attention and MLP of the first layer, then of the second ..., finally the head. With
  // one rotation it is the same object each time. Errors: resource, unsupported (activations that are not finite).
  Result<std::shared_ptr<const EigenPairs>> next();

 private:
  int64_t blocks() const { return each_block_ ? 2 * work_.spec.layer_count() + 1 : 1; }
  Result<void> measure();
  Result<std::shared_ptr<const EigenPairs>> rotation(std::vector<double> moments) const;

  const StructuralWork& work_;
  int64_t kept_;
  bool each_block_;
  int64_t block_ = 0;                         // the next
  std::vector<std::vector<double>> moments_;  // [width, width] of each block from block_ on
  MemoryHold memory_;
  std::shared_ptr<const EigenPairs> only_;  // without each_block_
};

}  // namespace millrace
