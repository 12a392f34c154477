#include "use_flag.h"

#include <fmt/format.h>

namespace millrace {

void UseFlag::add_to(CLI::App* app, const std::string& command_name) {
  command = command_name;
  app->add_option(
         "--use", texts,
         fmt::format("Technique FAMILY=NAME[:key=value,...], here of these families: {}; repeatable (see millrace "
                     "techniques)",
                     families_in(command)))
      ->allow_extra_args(false);
}

Result<std::vector<TechniqueUse>> UseFlag::get() const {
  auto uses = parse_uses(texts, command);
  if (!uses.ok()) return Error{uses.error().kind, "--use " + uses.error().message};
  return uses;
}

std::vector<TechniqueUse> use_of_flag(const std::string& family, const std::string& value, const std::string& command) {
  auto use = parse_use(family + "=" + value, command);
  return use.ok() ? std::vector{std::move(*use)} : std::vector<TechniqueUse>();
}

Result<void> check_flag_against(const std::vector<TechniqueUse>& uses, const std::string& family,
                                const std::string& flag, const std::string& value, const std::string& command) {
  for (const TechniqueUse& use : uses) {
    if (use.family != family) continue;
    const auto flagged = use_of_flag(family, value, command);
    if (flagged.empty() || !same_choice(use, flagged.front()))
      return Error::user(fmt::format("--use {}: {} is {}; give only one of them", use.text(), flag, value));
  }
  return {};
}

}  // namespace millrace
