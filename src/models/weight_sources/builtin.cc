// The built-in sources of weights. The first one is the default.
#include "models/weight_sources/records.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

}  // namespace

const Registry<WeightSourceMember>& weight_sources() {
  static const Registry<WeightSourceMember> registry(
      {.loss = Loss::lossless, .test = "src/engine/weight_sources_test.cc", .proof = "docs/weights.md"},
      {
          {{"weights", "resident", "all weights stay in memory"}, kResidentWeights},
          {{"weights",
            "mapped",
            "layers are read from the packed cache as a pass reaches them, and released after it",
            {},
            {{"ahead", Type::integer, "1", 0, 64, "layers whose reading starts before they are needed"},
             {"pinned", Type::integer, "0", 0, 65536, "layers, from the first, that stay in memory"}}},
           kMappedWeights},
      });
  return registry;
}

}  // namespace millrace
