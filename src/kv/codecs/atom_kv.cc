// Atom's KV cache (Zhao et al., 2023, "Atom: Low-bit Quantization for Efficient and Accurate LLM Serving",
// section 4.4): asymmetric rounding to 4 bits, one scale and one zero for each head of a token.
#include <fmt/format.h>

#include "kv/codecs/factories.h"
#include "kv/codecs/level_codec.h"

namespace millrace {

Result<std::shared_ptr<const KvCodec>> make_atom_kv(const OptionValues& options) {
  const int64_t bits = options.integer("bits"), residual = options.integer("residual");
  return std::shared_ptr<const KvCodec>(
      std::make_shared<MinMaxCodec>(LevelShape{.bits = static_cast<int>(bits)},
                                    fmt::format("atom_kv:bits={},residual={}", bits, residual), residual));
}

}  // namespace millrace
