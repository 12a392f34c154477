// --resident-layers, --place and --mlock: where a model's weights are.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/options.h"
#include "model_flags.h"

namespace millrace {

void ModelFlags::add_places_to(CLI::App* command) {
  command
      ->add_option("--resident-layers", resident_layers,
                   "Layers that stay in memory; the others are read from the disk as they run (weights=stream)")
      ->check(CLI::Range(int64_t{0}, int64_t{65536}));
  command
      ->add_option(
          "--place", places,
          "Where tensors are, PATTERN=memory or PATTERN=disk, such as experts=disk; repeatable, the last match "
          "counts (weights=experts if experts are on the disk, else weights=stream)")
      ->allow_extra_args(false);
  command->add_flag("--mlock", mlock,
                    "Lock the weights that stay in memory, so that the system does not page them out");
}

Result<std::string> ModelFlags::placed(const std::string& weights) const {
  for (const std::string& place : places)
    if (place.find(';') != std::string::npos)
      return Error::user(fmt::format("--place {}: a pattern has no semicolon; give --place again", place));
  if (!places.empty() && weights.find("place=") != std::string::npos)
    return Error::user(
        fmt::format("--use weights={}: --place is short for the option place; give only one of them", weights));
  std::string out = weights;
  const auto experts =
      std::find_if(places.rbegin(), places.rend(), [](const std::string& one) { return one.starts_with("experts="); });
  const bool on_disk = experts != places.rend() && *experts == "experts=disk";
  if (out == "resident" && on_disk) {
    if (resident_layers >= 0)
      return Error::user(
          "--resident-layers: not with --place experts=disk, which reads single experts; leave one of them out");
    out = "experts";
  }
  if (out == "resident" && (resident_layers >= 0 || !places.empty())) out = "stream";
  const auto add = [&](const std::string& option) { out += (out.find(':') == out.npos ? ":" : ",") + option; };
  if (resident_layers >= 0) add(fmt::format("resident={}", resident_layers));
  if (!places.empty()) add("place=" + escape_option(fmt::format("{}", fmt::join(places, ";"))));
  if (mlock) add("lock=true");
  return out;
}

}  // namespace millrace
