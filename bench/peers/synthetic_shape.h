// Parts of a synthetic model: the shape of a published family with made-up sizes, tensors in the usual mix of formats,
// and a vocabulary that any reader of SentencePiece GGUF files accepts. The weights are normally distributed random
// numbers: the output is meaningless, but every product costs as much as in a real model.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/arch.h"
#include "models/convert/tensor_source.h"
#include "text/tokenizer.h"

namespace millrace {

struct SyntheticShape {
  std::string_view name;  // "llama-1.1b"
  std::string_view arch;  // as in models/arch/
  std::string_view summary;
  int64_t layers, width, hidden, heads, kv_heads, head_dim;
  int64_t experts = 0, used = 0;  // hidden is then the width of one expert
  int64_t vocab = 32000;
};

std::span<const SyntheticShape> synthetic_shapes();

// The shape as data. Errors: user (an unknown architecture, inconsistent sizes).
Result<ArchSpec> synthetic_spec(const SyntheticShape& shape);

// Names, formats and dimensions of every tensor; `format` is one of formats/ or "q4_k_m", the usual mix of Q4_K with
// Q6_K for the head, half of the value projections and half of the MLPs' down projections. Errors: user.
Result<std::vector<OutputTensor>> synthetic_tensors(const ArchSpec& spec, std::string_view format);

// Control tokens, the 256 bytes, letters and short words. At least 320 tokens.
TokenizerSpec synthetic_tokenizer(int64_t vocab);

}  // namespace millrace
