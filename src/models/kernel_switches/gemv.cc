// Products of a few tokens as one matrix-vector product each, what engines without flat products do when they decode a
// batch (Hong et al., 2023, "FlashDecoding++", section 4): the baseline of multiplying the tokens together.
#include "models/kernel_switches/records.h"

namespace millrace {
namespace {

Result<void> set_gemv(const OptionValues& options, ForwardSwitches& switches) {
  ShapeTable table = switches.shapes ? *switches.shapes : ShapeTable();
  table.set_gemv(options.integer("tokens"));
  switches.shapes = std::make_shared<const ShapeTable>(std::move(table));
  return {};
}

}  // namespace

extern const KernelSwitch kGemv = {.set = set_gemv};

}  // namespace millrace
