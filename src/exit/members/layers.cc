// A fixed depth: every token of a stream leaves behind the first n layers (Elhoushi et al., 2024, LayerSkip: Enabling
// Early Exit Inference and Self-Speculative Decoding). No token of the stream needs a key of the layers behind these.
#include <fmt/format.h>

#include <algorithm>

#include "exit/members/factories.h"

namespace millrace {
namespace {

class LayersExit final : public ExitGate {
 public:
  explicit LayersExit(int64_t layers) : exit_(layers) {}

  Result<void> check(int64_t layers) const override {
    if (exit_ <= layers) return {};
    return Error::user(fmt::format("exit {}: n: the model has {} layers", text(), layers));
  }
  int64_t next(int64_t depth) const override { return depth < exit_ ? exit_ : kNever; }
  void stop(const ExitRows& rows, std::span<uint8_t> stops) const override {
    if (rows.depth >= exit_) std::ranges::fill(stops, uint8_t{1});
  }
  int64_t stored(int64_t layers) const override { return std::min(layers, exit_); }

 private:
  int64_t exit_;
};

}  // namespace

Result<std::unique_ptr<ExitGate>> make_layers_exit(const OptionValues& options) {
  return std::unique_ptr<ExitGate>(std::make_unique<LayersExit>(options.integer("n")));
}

}  // namespace millrace
