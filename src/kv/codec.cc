#include "kv/codec.h"

#include "base/choose.h"

namespace millrace {

double KvCodec::bits_per_value() const {
  constexpr int64_t kHeadDim = 128;
  const int64_t tokens = block_multiple();
  return 8.0 * static_cast<double>(tile_bytes(tokens, kHeadDim)) / static_cast<double>(tokens * kHeadDim);
}

Result<std::shared_ptr<const KvCodec>> find_kv_codec(std::string_view text) {
  if (!kv_codecs().find(text.substr(0, text.find(':')))) return std::shared_ptr<const KvCodec>();
  MILLRACE_TRY(const auto chosen, choose_member("KV format", kv_codecs(), text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error{made.error().kind, chosen.label + ": " + made.error().message};
  return made;
}

}  // namespace millrace
