// ProgramMember: a way to answer a conversation by a program in place of one generation. Each member is one file under
// members/ and one entry in builtin.cc. A member only writes the program; ProgramRun executes it. Immutable; several
// threads may use one object at once.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "program/program.h"

namespace millrace {

// A conversation and the settings with which one generation would answer it.
struct ProgramQuestion {
  std::vector<ProgramMessage> messages;  // the last one is the user's
  int64_t max_tokens = 256;              // limit of each generation
  std::vector<std::string> stop;
  std::optional<double> temperature;  // the client's; empty: the member's own
  uint64_t seed = 0;

  const std::string& text() const { return messages.back().content; }
  // The settings of a generation that answers the question.
  GenSettings settings() const;
  // The messages as a program has them: their braces are not around names.
  std::vector<ProgramMessage> escaped_messages() const;
};

class ProgramMember {
 public:
  virtual ~ProgramMember() = default;
  // Returns the program whose text is the answer. It depends on the arguments alone.
  virtual Program program(const ProgramQuestion& question) const = 0;
  // Returns the names of the models that its programs ask in addition to the request's own.
  virtual std::vector<std::string> models() const { return {}; }
};

using ProgramMemberFactory = Result<std::unique_ptr<ProgramMember>> (*)(const OptionValues& options);
const Registry<ProgramMemberFactory>& program_members();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<ProgramMember>> make_program_member(std::string_view text);

}  // namespace millrace
