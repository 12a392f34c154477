#include "text/grammar/schema.h"

#include <fmt/format.h>

#include "text/grammar/schema_compiler.h"

namespace millrace {
namespace {

Result<bool> compile_with(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits, GrammarNotes& notes,
                          SchemaFlattener::OneOf one_of) {
  SchemaDocument document;
  MILLRACE_TRY_VOID(document.load(text, limits.depth));
  GrammarNotes own;
  SchemaCompiler compiler(spec, document, limits, own, one_of);
  const Result<void> done = compiler.compile();
  const SchemaJson strict =
      document.root().is_object() ? document.root().value(kStrictSchema, SchemaJson(false)) : SchemaJson(false);
  if (done.ok() && !own.weakened.empty() && strict != false) {
    const std::string whose = strict.is_string() ? strict.get<std::string>() + ": " : "";
    return Error::unsupported(
        fmt::format("JSON schema: {}{}; strict mode requires exact enforcement: change the schema or omit strict",
                    whose, own.weakened.front()));
  }
  for (const std::string& note : own.weakened) notes.weaken(note);
  for (const std::string& note : own.ignored) notes.ignore(note);
  if (!done.ok() && (!compiler.turned() || done.error().kind != ErrorKind::unsupported)) return done.error();
  return done.ok();
}

}  // namespace

Result<void> compile_json_schema(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits,
                                 GrammarNotes& notes) {
  const GrammarSpec before = spec;
  const GrammarNotes notes_before = notes;
  MILLRACE_TRY(const bool exact, compile_with(spec, text, limits, notes, SchemaFlattener::OneOf::exact));
  if (exact) return {};
  if (limits.budget) MILLRACE_TRY_VOID(limits.budget->check());  // do not weaken the schema because time ran out
  // Too large to be enforced exactly: compile oneOf as anyOf, with a note.
  spec = before;
  notes = notes_before;
  MILLRACE_TRY(const bool weak, compile_with(spec, text, limits, notes, SchemaFlattener::OneOf::weak));
  return weak ? Result<void>() : Error::internal("JSON schema: too large even with oneOf as anyOf");
}

}  // namespace millrace
