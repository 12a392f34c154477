// The flags that say what an answer must be written like, shared by the commands that generate.
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
  // Reads files and prints what is only partly kept. Errors: corrupt (a file), user and unsupported (the constraint).
  Result<Constraint> get() const;
};

}  // namespace millrace
