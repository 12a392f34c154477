// The flags of commands that draw their result.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "picture/picture.h"

namespace millrace {

struct PictureFlags {
  std::string path, theme = "light";

  // Adds --picture and --picture-theme. `what`: what the picture shows, for the help.
  void add_to(CLI::App* command, const std::string& what);
  bool wanted() const { return !path.empty(); }
  // Checks, before the work whose result is drawn, that it can be drawn and written.
  Result<void> check() const;
  // Does nothing without --picture.
  Result<void> write(const Chart& chart) const;
};

}  // namespace millrace
