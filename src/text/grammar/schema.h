// Compiles JSON Schema (draft 2020-12, and drafts 7, 6 and 4 where they differ) to grammar rules.
//
// Enforced exactly: type, enum, const, $ref and $dynamicRef (also recursive, within the schema), allOf, anyOf, oneOf,
// not and if/then/else, properties, required, additionalProperties, patternProperties, propertyNames, minProperties,
// maxProperties, dependentRequired, dependentSchemas, unevaluatedProperties, items, prefixItems, additionalItems,
// unevaluatedItems, contains, minContains, maxContains, minItems, maxItems, uniqueItems over few values, minimum,
// maximum and the exclusive ones, multipleOf, minLength, maxLength, pattern and the formats of schema_strings.h.
//
// Weakened, with a note for each place (GrammarNotes::weakened): oneOf becomes anyOf if negating its schemas grows too
// large; uniqueItems is dropped if items may have many values; formats of the standard that schema_strings.h lacks are
// dropped. With kStrictSchema in the schema, these are errors. Any other unsupported keyword is rejected with its
// place. Unknown keywords and formats, which must be ignored according to the standard, are listed in
// GrammarNotes::ignored.
//
// Not every spelling of a valid value is accepted. Named properties are in the order of the schema, before all others;
// with minProperties or maxProperties, required properties come first. See json_rules.h for white space and numbers.
// Keys that the schema does not name may occur twice; JSON parsers use the last one.
#pragma once

#include <string_view>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_notes.h"

namespace millrace {

// A keyword at a schema's root that forbids weakening. Its value is true, or a name for the schema in the error.
inline constexpr const char* kStrictSchema = "x-millrace-strict";

// Fills `spec`. Errors: user (not JSON, not a schema), unsupported (the message has the place in the schema).
Result<void> compile_json_schema(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits,
                                 GrammarNotes& notes);

}  // namespace millrace
