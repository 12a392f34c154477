// KIVI: levels of 2 or 4 bits between the minimum and the maximum of a group. Keys are grouped along the tokens of one
// channel, because a few channels of keys are large in every token; values along the channels of one token.
#include <fmt/format.h>

#include "kv/codecs/factories.h"
#include "kv/codecs/level_codec.h"

namespace millrace {

Result<std::shared_ptr<const KvCodec>> make_kivi(const OptionValues& options) {
  const int64_t bits = options.integer("bits"), group = options.integer("group"),
                residual = options.integer("residual");
  if (bits != 2 && bits != 4) return Error::user(fmt::format("bits: must be 2 or 4, got {}", bits));
  if (group != 32 && group != 64 && group != 128)
    return Error::user(fmt::format("group: must be 32, 64 or 128, got {}", group));
  return std::shared_ptr<const KvCodec>(
      std::make_shared<MinMaxCodec>(LevelShape{.bits = static_cast<int>(bits), .key_tokens = group, .group = group},
                                    fmt::format("kivi:bits={},group={},residual={}", bits, group, residual), residual));
}

}  // namespace millrace
