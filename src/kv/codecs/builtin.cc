// The built-in KV codecs, one line each.
#include "kv/codecs/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

}  // namespace

// clang-format off
const Registry<KvCodecFactory>& kv_codecs() {
  static const Registry<KvCodecFactory> registry({.loss = Loss::lossy, .test = "tests/properties/kv_codecs_test.cc", .proof = "docs/kv-formats.md"}, {});
  return registry;
}
// clang-format on

}  // namespace millrace
