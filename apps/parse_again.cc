#include "parse_again.h"

#include "arguments.h"
#include "base/system.h"

namespace millrace {
GivenFlags given_flags(const CLI::App& command) {
  GivenFlags out;
  for (const CLI::Option* option : all_options(command))
    if (option->count() > 0) out[option->get_name()] = option->results();
  return out;
}

Result<GivenFlags> parse_again(const char* name, const std::function<void(CLI::App&)>& declare) {
  CLI::App app;
  declare_commands(app);
  app.remove_subcommand(app.get_subcommand(name));
  declare(app);
  const std::vector<std::string> arguments = process_arguments();
  if (arguments.empty()) return Error::user("the command line cannot be read");
  MILLRACE_TRY(const CheckedArguments checked, check_arguments(app, arguments));
  std::vector<const char*> args;
  for (const std::string& argument : checked.arguments) args.push_back(argument.c_str());
  try {
    app.parse(static_cast<int>(args.size()), args.data());
  } catch (const CLI::ParseError& error) {
    return Error::user(usage_error(app, error));
  }
  return given_flags(*app.get_subcommand(name));
}

}  // namespace millrace
