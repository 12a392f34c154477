#include "schedule/policy.h"

#include <fmt/format.h>

namespace millrace {

Result<std::unique_ptr<SchedulerPolicy>> make_policy(std::string_view text) {
  const auto colon = text.find(':');
  const auto* entry = policies().find(text.substr(0, colon));
  if (!entry)
    return Error::user(fmt::format("policy: unknown '{}'; available: {}", text.substr(0, colon), policies().names()));
  auto options =
      parse_options(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1), entry->info.options);
  if (!options.ok()) return Error::user(fmt::format("policy {}: {}", entry->info.name, options.error().message));
  return entry->member(*options);
}

}  // namespace millrace
