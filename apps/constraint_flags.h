// The structured-output flags shared by the commands that generate text.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "millrace/request.h"
#include "millrace/result.h"

namespace millrace {

struct ConstraintFlags {
  std::string json_schema, regex, grammar, trigger;
  std::vector<std::string> choices;
  bool json_object = false;

  void add_to(CLI::App* command);
  // Reads files and prints which parts of the constraint are not fully enforced. Errors: corrupt (a file), user and
  // unsupported (the constraint).
  Result<Constraint> get() const;
};

}  // namespace millrace
