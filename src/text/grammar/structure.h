// Structures: constraints composed of other constraints, in XGrammar's JSON notation of structural tags (vLLM's
// `structural_tag`). For example, a tool call is a literal, a JSON Schema and a literal, and reasoning is free text up
// to an end marker.
//
//   {"type": "sequence", "elements": [
//     {"type": "text_until", "end": "</think>"},
//     {"type": "triggered_tags", "triggers": ["<call>"],
//      "tags": [{"begin": "<call>", "content": {...}, "end": "</call>"}]}]}
//
//   const_string {value}    regex {pattern}    grammar {grammar}    json_schema {json_schema}    any_text
//   sequence {elements}     or {elements}      optional {content}   tag {begin, content, end}
//   text_until {end}        free text up to and including the first occurrence of `end`
//   triggered_tags          {triggers, tags, at_least_one, stop_after_first}: free text; after a trigger, one of the
//                           tags that begin with the trigger must follow
//   tags_with_separator     {tags, separator, at_least_one, stop_after_first}
//   fields                  {fields, close, between, end}: values with tags, see structure_fields.h
//   listed                  {items, separator, open, close, repeated}: the items in their order, separated, between
//                           `open` and `close` (each may be left out). An item is {key, content, required}: the text
//                           `key`, then the content; without `required`, the item may be left out. repeated: every item
//                           may occur several times
//   fields, listed          {definitions}: members that are added to the json_schema parts within, such as "$defs"
//   any part                {weakened, strict}: notes on what this part does not enforce; with strict, an error
//   any part                {shared}: true: equal parts become one rule
#pragma once

#include <string_view>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_notes.h"

namespace millrace {

// Fills `spec`. Errors: user (not a valid structure; the message has the place), unsupported (too large), and those of
// the compilers of its parts.
Result<void> compile_structure(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits,
                               GrammarNotes& notes);

// Returns an expression for free text that may contain triggers. A trigger must be followed by its rule `after` (-1:
// nothing). After that, the text is free again if `again`; otherwise, it ends. `must`: at least one trigger is
// required. Triggers must not be empty, and none may be a substring of another.
struct Trigger {
  std::string text;
  RuleId after = -1;
};
Result<ExprId> triggered_text(GrammarSpec& spec, const std::vector<Trigger>& triggers, bool must, bool again,
                              CompileBudget* budget);

}  // namespace millrace
