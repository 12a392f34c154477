// JSON Schema (draft 2020-12, and 7, 6 and 4 as far as they differ) to grammar rules.
//
// Kept exactly: type, enum, const, $ref and $dynamicRef (recursive too, within the schema), allOf, anyOf, oneOf, not
// and if/then/else, properties, required, additionalProperties, patternProperties, propertyNames, minProperties,
// maxProperties, dependentRequired, dependentSchemas, unevaluatedProperties, items, prefixItems, additionalItems,
// unevaluatedItems, contains, minContains, maxContains, minItems, maxItems, uniqueItems over few values, minimum and
// its kin, multipleOf, minLength, maxLength, pattern and the formats of schema_strings.h.
//
// Weakened, each place with a note (GrammarNotes::weakened): oneOf is kept as anyOf where turning its schemas round
// grows too large, uniqueItems not at all where the items may have many values, and formats of the standard that are
// not known here. With kStrictSchema in the schema that is an error. What is not kept otherwise is refused with its
// place; what the standard says to ignore (unknown keywords and formats) is named in GrammarNotes::ignored.
//
// Texts are narrower than the values they stand for: properties come in the order of the schema, then the others
// (under minProperties or maxProperties the required ones come first); see
// json_rules.h for white space and numbers. Keys that the schema does not name may come twice; JSON readers take the
// last.
#pragma once

#include <string_view>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_notes.h"

namespace millrace {

// A keyword at a schema's root: nothing of it may be weakened. True, or a text that names the schema in the error.
inline constexpr const char* kStrictSchema = "x-millrace-strict";

// Fills `spec`. Errors: user (not JSON, not a schema), unsupported (with the place in the schema).
Result<void> compile_json_schema(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits,
                                 GrammarNotes& notes);

}  // namespace millrace
