// JSON Schema (draft 2020-12, and 7, 6 and 4 as far as they differ) to grammar rules.
//
// Kept exactly: type, enum, const, $ref (recursive too, within the schema), allOf, anyOf, not and if/then/else over what
// can be turned round, properties, required, additionalProperties, patternProperties, propertyNames, minProperties,
// maxProperties, dependentRequired, dependentSchemas, unevaluatedProperties, items, prefixItems, additionalItems,
// unevaluatedItems, minItems, maxItems, minimum and its kin, multipleOf, minLength, maxLength, pattern and the formats of
// schema_strings.h. oneOf is kept as anyOf, with a note. What is not kept is refused with its place; nothing is left out
// in silence: what the standard says to ignore (unknown keywords and formats) is named in the notes.
//
// Texts are narrower than the values they stand for: properties come in the order of the schema, then the others
// (under minProperties or maxProperties the required ones come first); see
// json_rules.h for white space and numbers. Keys that the schema does not name may come twice; JSON readers take the last.
#pragma once

#include <string_view>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_notes.h"

namespace millrace {

// Fills `spec`. Errors: user (not JSON, not a schema), unsupported (with the place in the schema).
Result<void> compile_json_schema(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits, GrammarNotes& notes);

}  // namespace millrace
