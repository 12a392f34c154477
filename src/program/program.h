// Program: generations that depend on each other, as data. A program has texts, generations, choices between texts, and
// forks into branches, after SGLang (Zheng et al., 2024, "SGLang: Efficient Execution of Structured Language Model
// Programs"). It is read from JSON (program_reader.h) or built in C++ (builder.h), and executed by ProgramRun (run.h).
//
//   text "Q: {question}\nA:"  ->  gen answer  ->  fork checks  -->  branch 0: ... gen verdict
//                                                              \->  branch 1: ... gen verdict
//                                                 join checks  <--
//
// A branch has a text, which is the prompt of its generations, and variables. Both are copied at a fork. If the program
// has messages, the text is the assistant's message that has begun, and the messages come before it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "millrace/request.h"

namespace millrace {

struct ProgramStep;
using ProgramSteps = std::vector<ProgramStep>;

// Limits on programs that strangers send. All but the last two are checked before the program runs.
struct ProgramLimits {
  int64_t steps = 4096;                      // steps of all branches, as written
  int64_t forks_deep = 4;                    // forks inside of each other
  int64_t branches = 256;                    // branches of one fork
  int64_t all_branches = 4096;               // branches of all forks
  int64_t executed = int64_t{1} << 16;       // steps that all branches execute
  int64_t requests = 1024;                   // generations that a run may send, with one for each choice of a select
  int64_t tokens = int64_t{1} << 18;         // that all of these may generate
  int64_t text_bytes = int64_t{1} << 20;     // bytes of one branch with its messages, and of one variable
  int64_t copied_bytes = int64_t{64} << 20;  // bytes of all prompts, of branches' beginnings and of what steps write
};

struct ProgramMessage {
  std::string role;     // "system" or "user"
  std::string content;  // may contain {variables}
};

// Settings of one generation. A missing value is the default of the generator.
struct GenSettings {
  int64_t max_tokens = 128;
  std::vector<std::string> stop;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;  // default: the branch's
  Constraint constraint;         // its kind is none, regex, json_object, json_schema or choice
  std::string model;             // "": the program's
};

// Appends `text`, in which {name} is replaced by the variable's value; "{{" and "}}" are braces.
struct TextStep {
  std::string text;
};

// Ends the assistant's message, if one has begun, and appends a message.
struct MessageStep {
  ProgramMessage message;
};

// Stores `text`, in which {name} is replaced by the variable's value.
struct SetStep {
  std::string name;
  std::string text;
};

// Generates a text, stores it in the variable `name` and appends it.
struct GenStep {
  std::string name;
  GenSettings settings;
  bool score = false;  // also computes the mean log-probability of its tokens, which `best` and `if` read
  bool append = true;  // false: only stores it
};

// Appends the likeliest of `choices`, and stores it: the one whose tokens have the highest mean log-probability. The
// tokens are those that the model itself writes if it may write nothing else.
struct SelectStep {
  std::string name;
  std::vector<std::string> choices;
  std::string model;
};

// Starts branches and goes on. Exactly one of these is set: `branches` has several; `count` > 0 repeats the only member
// of `branches`; `each` names a variable and repeats it for every line of the variable's value that is not empty.
// In a branch, {index} is its number from 1, {count} the number of branches, and {as} the line.
struct ForkStep {
  std::string name;
  std::vector<ProgramSteps> branches;
  int64_t count = 0;
  std::string each, as;
  bool numbered = false;  // only lines that begin with a number and a full stop, without these
  int64_t most = 16;      // lines; further ones are left out
};

// Waits for a fork's branches, stores their texts in the fork's name, and appends them, one after the other.
struct JoinStep {
  std::string fork;
  std::string text;  // written for each branch, with its variables; "": what the branch has appended
  std::string separator = "\n";
  bool append = true;
};

// Waits for a fork's branches and stores the value of their variable `of` that most branches have; of several such
// values the one of the earliest branch.
struct VoteStep {
  std::string name;
  std::string fork, of;
  std::string after;   // only what follows the last occurrence of this text counts; "": everything
  bool whole = false;  // store the earliest such branch's whole value instead of the part that counts
};

// Waits for a fork's branches and stores the value of their variable `of` whose tokens have the highest mean
// log-probability. `of` is a generation with `score`.
struct BestStep {
  std::string name;
  std::string fork, of;
};

// Runs `steps` if the variable `of` has the value `is`, apart from white space at its ends; or, without `is`, if the
// confidence of the generation `of` is below `below`. The confidence is the exponential of the mean log-probability of
// its tokens, between 0 and 1.
struct IfStep {
  std::string of;
  double below = 0;
  std::optional<std::string> is;
  ProgramSteps steps;
};

struct ProgramStep {
  std::variant<TextStep, MessageStep, SetStep, GenStep, SelectStep, ForkStep, JoinStep, VoteStep, BestStep, IfStep>
      what;
};

struct Program {
  std::map<std::string, std::string> variables;  // values that steps may use; those of a call replace them
  std::vector<ProgramMessage> messages;          // the conversation that the program continues; empty: plain text
  ProgramSteps steps;
  std::string output;  // text of the result, with variables; "": the text of the branch that has run all steps
  uint64_t seed = 0;
};

// Returns true if the program has messages, or if the first step that it runs is one.
bool has_messages(const Program& program);

// Most requests that a run may send, and tokens that these may generate.
struct ProgramSize {
  int64_t requests = 0, tokens = 0;
};

// Checks the limits, and that every name is a name and is set before a step reads it. Errors: user; the message begins
// with the place, such as "steps[2].branches[0][1]".
Result<ProgramSize> check_program(const Program& program, const ProgramLimits& limits);

}  // namespace millrace
