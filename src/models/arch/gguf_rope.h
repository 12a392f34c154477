// Rotary fields of a GGUF file: ARCH.rope.* and the tensors of frequency divisors. One reader for all architectures.
#pragma once

#include "models/arch.h"
#include "models/arch_spec.h"

namespace millrace {

// The unit of rope.scaling.yarn_log_multiplier, which stores YaRN's mscale_all_dim (frozen: llama.cpp's converters).
enum class YarnLogUnit { whole, tenth };

struct GgufRope {
  RopeSpec rope;
  double mscale_all_dim = 0.0;  // 0: the file states none
};

// Reads everything but the tensors. `rotated`: rotated dims of files that do not state them. `context`: the context
// length. Failures are stored in `meta`.
GgufRope read_gguf_rope(ConfigReader& meta, int64_t rotated, int64_t context, YarnLogUnit unit);

// Adds the divisors that the file stores as tensors (rope_freqs, rope_factors_long, rope_factors_short).
void read_gguf_rope_tensors(const ModelFiles& files, RopeSpec& rope);

// YaRN's temperature (Peng et al., 2023) as Transformers' get_mscale() computes it.
double yarn_mscale(double factor, double multiplier);

}  // namespace millrace
