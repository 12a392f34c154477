// Structures: constraints put together from others, as JSON in XGrammar's notation of structural tags (vLLM's
// `structural_tag` is one). So a tool call is a literal, a JSON Schema and a literal; thinking is free text up to its
// end.
//
//   {"type": "sequence", "elements": [
//     {"type": "text_until", "end": "</think>"},
//     {"type": "triggered_tags", "triggers": ["<call>"], "tags": [{"begin": "<call>", "content": {...}, "end":
//     "</call>"}]}]}
//
//   const_string {value}    regex {pattern}    grammar {grammar}    json_schema {json_schema}    any_text
//   sequence {elements}     or {elements}      optional {content}   tag {begin, content, end}
//   text_until {end}        free text up to its first occurrence, and that
//   triggered_tags          {triggers, tags, at_least_one, stop_after_first}: free text; where a trigger occurs, a tag
//   that begins with it any part                {weakened, strict}: texts that name what it says less of than was asked
//   for; with strict, an error tags_with_separator     {tags, separator, at_least_one, stop_after_first}
#pragma once

#include <string_view>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_notes.h"

namespace millrace {

// Fills `spec`. Errors: user (not such a structure, with the place; what a part's own compiler finds), unsupported
// (size).
Result<void> compile_structure(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits,
                               GrammarNotes& notes);

// Free text in which none of `triggers` has occurred, or one has and `after` (a rule each; -1: nothing) follows. Behind
// that the text is free again where `again`, and ends otherwise. `must`: a trigger has to come. Triggers are not empty,
// and none is a part of another.
struct Trigger {
  std::string text;
  RuleId after = -1;
};
Result<ExprId> triggered_text(GrammarSpec& spec, const std::vector<Trigger>& triggers, bool must, bool again,
                              CompileBudget* budget);

}  // namespace millrace
