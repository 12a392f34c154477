#include "schedule/policy.h"

#include <fmt/format.h>

namespace millrace {

Result<std::unique_ptr<SchedulerPolicy>> make_policy(std::string_view text) {
  const auto colon = text.find(':');
  const auto* entry = policies().find(text.substr(0, colon));
  if (!entry) {
    std::string known;
    for (const auto& other : policies().entries()) known += (known.empty() ? "" : ", ") + other.info.name;
    return Error::user(fmt::format("policy: no '{}'; there are: {}", text.substr(0, colon), known));
  }
  auto options =
      parse_options(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1), entry->info.options);
  if (!options.ok()) return Error::user(fmt::format("policy {}: {}", entry->info.name, options.error().message));
  return entry->make(*options);
}

}  // namespace millrace
