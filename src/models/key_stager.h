// KeyStager: brings a layer's keys and values to their addresses in the pool before a pass needs them, and saves new
// ones, where not all layers have memory for all blocks (kv/staged_layers.h). A pass calls it for each layer that
// attends, in the order below, on its own thread between its parallel parts. `layer` is a layer of the pool; layers
// that read the keys of another one name that layer.
#pragma once

#include "flow/batch.h"

namespace millrace {

struct AttentionInput;  // models/forward_hooks.h

class KeyStager {
 public:
  virtual ~KeyStager() = default;

  // Before the batch's keys are stored: the blocks that its tokens lie in must be there.
  virtual void before_keys(const Batch& batch, int64_t layer) = 0;
  // After the batch's keys are stored and before queries read: the blocks that the queries see must be there.
  virtual void before_attention(const AttentionInput& input) = 0;
};

}  // namespace millrace
