// The first layers of the engine's model, for the drafter layerskip.
#include <fmt/format.h>

#include <algorithm>

#include "run/drafting/models/loader.h"
#include "run/drafting/self_runner.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_layerskip(const OptionValues& options, const DraftModelHost& host) {
  const ArchSpec& spec = host.target.parts().model->spec();
  const int64_t first = options.integer("exit"), layers = spec.layer_count();
  if (first >= layers)
    return Error::user(
        fmt::format("drafter layerskip: exit: must be less than the model's {} layers, is {}", layers, first));
  std::vector<uint8_t> left_out(static_cast<size_t>(layers), 0);
  std::fill(left_out.begin() + first, left_out.end(), uint8_t{1});
  return std::unique_ptr<LoadedDraftModel>(
      std::make_unique<SelfRunner>(SkippedBlocks{left_out, left_out}, first, spec.width));
}

}  // namespace

extern const DraftModelLoader kLayerSkipDraftModel = {
    .name = "layerskip", .load = load_layerskip, .second = false, .layers = false};

}  // namespace millrace
