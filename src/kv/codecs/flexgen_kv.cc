// FlexGen's KV cache (Sheng et al., 2023, "FlexGen: High-Throughput Generative Inference of Large Language Models with
// a Single GPU", section 5): groups of 64 neighbouring channels of a token, each rounded to 4 bits between its minimum
// and its maximum. Keys and values alike.
#include <fmt/format.h>

#include "kv/codecs/factories.h"
#include "kv/codecs/level_codec.h"

namespace millrace {

Result<std::shared_ptr<const KvCodec>> make_flexgen_kv(const OptionValues& options) {
  const int64_t bits = options.integer("bits"), group = options.integer("group"),
                residual = options.integer("residual");
  if (group != 32 && group != 64 && group != 128)
    return Error::user(fmt::format("group: must be 32, 64 or 128, got {}", group));
  return std::shared_ptr<const KvCodec>(std::make_shared<MinMaxCodec>(
      LevelShape{.bits = static_cast<int>(bits), .group = group},
      fmt::format("flexgen_kv:bits={},group={},residual={}", bits, group, residual), residual));
}

}  // namespace millrace
