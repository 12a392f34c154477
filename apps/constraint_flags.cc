#include "constraint_flags.h"

#include <cstdio>

#include "input.h"
#include "text/grammar/constraint.h"

namespace millrace {

void ConstraintFlags::add_to(CLI::App* command) {
  CLI::Option_group* group =
      command->add_option_group("Structured output", "The format that the answer must follow; at most one of these");
  group->add_option("--json-schema", json_schema, "JSON Schema: a file, or the schema itself if it begins with {");
  group->add_flag("--json-object", json_object, "Any JSON object");
  group->add_option("--regex", regex, "Regular expression that must match the whole answer");
  group->add_option("--grammar", grammar, "File with a GBNF grammar; -: standard input");
  group->add_option("--choice", choices, "The answer is one of these texts: a,b,c")->delimiter(',');
  group->require_option(0, 1);
  command
      ->add_option("--constraint-trigger", trigger,
                   "Apply the constraint only after this text has occurred in the answer")
      ->group("Structured output");
}

Result<Constraint> ConstraintFlags::get() const {
  using Kind = Constraint::Kind;
  Constraint out;
  out.trigger = trigger;
  out.choices = choices;
  if (!json_schema.empty()) {
    out.kind = Kind::json_schema;
    out.text = json_schema;
    if (json_schema.find_first_not_of(" \t\n") == std::string::npos ||
        json_schema[json_schema.find_first_not_of(" \t\n")] != '{') {
      MILLRACE_TRY(out.text, read_text_file(json_schema));
    }
  } else if (!grammar.empty()) {
    out.kind = Kind::grammar;
    MILLRACE_TRY(out.text, read_text_file(grammar));
  } else if (!regex.empty()) {
    out.kind = Kind::regex;
    out.text = regex;
  } else if (!choices.empty()) {
    out.kind = Kind::choice;
  } else if (json_object) {
    out.kind = Kind::json_object;
  } else if (!trigger.empty()) {
    return Error::user("--constraint-trigger: requires --json-schema, --json-object, --regex, --grammar or --choice");
  }
  if (out.kind == Kind::none) return out;
  MILLRACE_TRY(const Grammar compiled, compile_constraint(out));
  for (const auto* notes : {&compiled.notes.weakened, &compiled.notes.ignored})
    for (const std::string& note : *notes) std::fprintf(stderr, "millrace: note: %s\n", note.c_str());
  return out;
}

}  // namespace millrace
