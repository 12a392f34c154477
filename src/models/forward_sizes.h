// ForwardSizes: the dimensions that determine the sizes of a pass's scratch buffers (forward_context.h). Each block and
// mixer declares what it needs; layers run one after the other, so that the largest need of a kind serves all.
#pragma once

#include <algorithm>
#include <cstdint>

#include "models/arch_spec.h"
#include "models/forward_switches.h"

namespace millrace {

struct ForwardLimits {
  int64_t tokens = 512;    // in one batch
  int64_t outputs = 64;    // rows of logits in one batch
  int64_t context = 2048;  // slots of one stream
  ForwardSwitches switches = {};
};

struct ForwardSizes {
  int64_t tokens = 0;
  int64_t outputs = 0;
  int64_t rows = 0;  // rows of the head, or of a layer
  int64_t width = 0;
  int64_t vocab = 0;
  int64_t rotated = 0;      // dims, of all rotation schemes together
  int64_t q_width = 0;      // attention: heads * head_dim
  int64_t kv_width = 0;     // kv_heads * head_dim
  int64_t partials = 0;     // bytes
  int64_t hidden = 0;       // MLP: values of a token, in all of its experts
  int64_t widest_row = 0;   // bytes of the widest row that a matrix reads, rounded
  int64_t hidden_row = 0;   // bytes of the MLP's inner width, in all experts of a token
  int64_t experts = 0;      // mixture: in a layer
  int64_t used = 0;         // experts of a token
  int64_t expert_rows = 0;  // rows of a batch in all experts
  int64_t expert_row = 0;   // bytes
  int64_t mixer = 0;        // bytes that a mixer divides up itself
  int64_t parts = 0;        // bytes of products with weight parts
  int64_t inputs = 0;       // values of a token's inputs of all layers
  int64_t streams = 0;      // values of a token in all residual streams, if there are several
  int64_t beside = 0;       // values of a token's row that waits for another block

  // A matrix reads rows of `cols` values.
  void reads(int64_t cols);
  template <typename... Sizes>
  static void grow(int64_t& size, Sizes... needed) {
    size = std::max({size, static_cast<int64_t>(needed)...});
  }
};

ForwardSizes forward_sizes(const ArchSpec& spec, const ForwardLimits& limits, int threads);

}  // namespace millrace
