// Whole numbers of flags, checked in one place: CLI11 takes the largest number of 64 bits for one that is larger.
#pragma once

#include <CLI/CLI.hpp>

namespace millrace {

// Adds the check to every flag and argument that takes whole numbers, of all commands. Called when they are declared.
void check_whole_numbers(CLI::App& app);

}  // namespace millrace
