// Which operations of a layer run as one (Zhai et al., 2022, "ByteTransformer"; Aminabadi et al., 2022, "DeepSpeed
// Inference"). A pass fuses them all unless told otherwise; blocks.h lists what follows from it.
#include <fmt/format.h>

#include <iterator>

#include "models/kernel_switches/records.h"

namespace millrace {
namespace {

constexpr std::pair<std::string_view, bool FusedParts::*> kFusedNames[] = {
    {"rows", &FusedParts::rows},       {"qkv", &FusedParts::qkv},   {"heads", &FusedParts::heads},
    {"gate_up", &FusedParts::gate_up}, {"bias", &FusedParts::bias}, {"activation", &FusedParts::activation},
    {"experts", &FusedParts::experts},
};

Error unknown_part(std::string_view part) {
  std::string known;
  for (const auto& [name, member] : kFusedNames) known += fmt::format(", {}", name);
  return Error::user(
      fmt::format("parts: unknown '{}'; all, none, or some of {}, with + between", part, known.substr(2)));
}

Result<void> set_fused(const OptionValues& options, ForwardSwitches& switches) {
  std::string_view rest = options.text("parts");
  const bool all = rest == "all";
  for (const auto& [name, member] : kFusedNames) switches.fused.*member = all;
  if (all || rest == "none") return {};
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('+'));
    bool known = false;
    for (const auto& [name, member] : kFusedNames)
      if (part == name) known = switches.fused.*member = true;
    if (!known) return unknown_part(part);
    if (part.size() == rest.size()) return {};
    rest.remove_prefix(part.size() + 1);
  }
}

}  // namespace

extern const KernelSwitch kFusedKernels = {.set = set_fused};

}  // namespace millrace
