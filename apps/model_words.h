// Words of a command line that need no flag: the model, and for `run` the message to it, as in
// `millrace run qwen3:0.6b "Why is the sky blue?"`. A model that is not on this machine is offered for download.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct ModelWords {
  std::string model;
  std::vector<std::string> text;  // words of the message
  bool yes = false;               // download without asking

  void add_to(CLI::App* command, bool with_text);  // MODEL, PROMPT if `with_text`, and --yes
  // Replaces `path` by MODEL. `flag_given`: -m was on the command line: the first word then belongs to the message.
  // Returns true if MODEL names the model; offer_model() is called for it when the other flags are checked.
  bool place(std::string* path, bool flag_given);
  std::string message() const;  // the words of the message, with blanks between them
};

void add_yes_to(CLI::App* command, bool* yes);  // --yes

// Checks that a name is a model on this machine, or one that a hub may have. Downloads nothing. Errors: corrupt (it is
// neither), and those of short_names().
Result<void> check_model_name(const std::string& name);

// Downloads a model that a hub may have, if `yes` is true or the user agrees on the terminal. Does nothing for a model
// that is on this machine. Errors: those of check_model_name, corrupt (it is not here; the message has the command that
// downloads it), user (the user declined), and those of pull_with_bar.
Result<void> offer_model(const std::string& name, bool yes);

// Prints one line on stderr, if that is a terminal, for a model in the binary: what it is, and how to run a larger one.
void introduce_built_in(const std::string& path, int64_t parameters);

}  // namespace millrace
