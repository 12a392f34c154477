// Structures: constraints composed of others, in XGrammar's JSON notation of structural tags (vLLM's `structural_tag`).
// A tool call, for example, is a literal, a JSON Schema and a literal; reasoning is free text up to an end marker.
//
//   {"type": "sequence", "elements": [
//     {"type": "text_until", "end": "</think>"},
//     {"type": "triggered_tags", "triggers": ["<call>"],
//      "tags": [{"begin": "<call>", "content": {...}, "end": "</call>"}]}]}
//
//   const_string {value}    regex {pattern}    grammar {grammar}    json_schema {json_schema}    any_text
//   sequence {elements}     or {elements}      optional {content}   tag {begin, content, end}
//   text_until {end}        free text up to and including the first occurrence of `end`
//   triggered_tags          {triggers, tags, at_least_one, stop_after_first}: free text; at a trigger, a tag that
//                           begins with it
//   tags_with_separator     {tags, separator, at_least_one, stop_after_first}
//   fields                  {fields, close, between, end}: values with tags, see structure_fields.h
//   any part                {weakened, strict}: notes on what this part does not enforce; with strict, an error
//   any part                {shared}: true: equal parts become one rule
#pragma once

#include <string_view>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_notes.h"

namespace millrace {

// Fills `spec`. Errors: user (not a valid structure, with the place), unsupported (size), those of the compilers of its
// parts.
Result<void> compile_structure(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits,
                               GrammarNotes& notes);

// Free text without any of `triggers`, or up to one that is followed by its rule `after` (-1: nothing). After that the
// text is free again if `again`, and ends otherwise. `must`: a trigger is required. Triggers are not empty, and none
// is a substring of another.
struct Trigger {
  std::string text;
  RuleId after = -1;
};
Result<ExprId> triggered_text(GrammarSpec& spec, const std::vector<Trigger>& triggers, bool must, bool again,
                              CompileBudget* budget);

}  // namespace millrace
