// TokenGates: gates of one layer's attention, trained with the checkpoint, that decide which tokens it stores and sees.
// They work where a stream's evictor asks for them (models/eviction_gates.h); without it the layer sees all tokens.
//
//   pairs       Anagnostidis et al., 2023: token n drops the earlier token j for good unless
//               q_n . k_j / sqrt(dims) + bias > 0, with q and k projected from the layer's normed input
//   selection   Ren et al., 2023 (SeqBoat): a token is stored and attends only if the second of two options, projected
//               from the same input, is larger than the first; the layer's output is multiplied by its probability
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "models/arch_spec.h"

namespace millrace {

class WeightLoader;

struct TokenGates {
  int64_t dims = 0;               // dims of pairs; 0: none
  std::vector<float> query, key;  // [width, dims]
  float bias = 0;                 // bias of pairs
  std::vector<float> select;      // [width], the second option's row less the first one's; empty: no selection
  float select_bias = 0;          // likewise
  float temperature = 1;          // temperature of the options' softmax

  int64_t bytes() const;
  // x [width] -> [dims]
  void project(const KernelTable& kernels, const std::vector<float>& matrix, const float* x, float* out) const;
  bool opens(const float* query, const float* key) const;
  // The probability of being selected, x [width]; 0: another option is at least as likely.
  float selection(const float* x) const;
};

// Loads the gates of the layer with this prefix ("blk.3."), if the file has them:
//
//   GGUF                                  safetensors, in the layer's self_attn. (GPT-2: attn.)
//   attn_int_q.weight [dims, width]       q_int.weight
//   attn_int_k.weight [dims, width]       k_int.weight
//   attn_int.bias [1]                     int_bias
//   attn_select.weight [2, width]         q_router.weight_proj.weight
//   attn_select.bias [2], optional        q_router.weight_proj.bias
//   attn_select.temperature [1], its log  q_router.temp; optional
//
// Errors: corrupt (an incomplete or wrong set, NaN), unsupported (a type).
Result<TokenGates> load_token_gates(WeightLoader& loader, const std::string& prefix, int64_t width);
// Sizes that all layers have in common; `path` is named in messages. Errors: corrupt (layers that differ).
Result<GateSizes> common_gates(const std::string& path, const std::vector<const TokenGates*>& layers);

}  // namespace millrace
