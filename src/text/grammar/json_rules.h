// JsonRules: grammar rules for the elements of JSON.
//
// White space is allowed where pretty-printers put it: after { [ , : and before } ]. It is one space, or a newline and
// up to 24 spaces or tabs. Numbers have at most 20 digits before the decimal point, 20 after it and 2 in the exponent,
// so that every number fits a double. Strings contain any character except raw control characters; \u escapes of
// surrogates must be paired.
#pragma once

#include <string>
#include <string_view>

#include "base/ordered_json.h"
#include "text/grammar/expr.h"

namespace millrace {

using SchemaJson = nlohmann::ordered_json;

class JsonRules {
 public:
  explicit JsonRules(GrammarSpec& spec) : spec_(spec) {}

  ExprId space();
  ExprId comma() { return spec_.sequence({spec_.bytes(","), space()}); }
  ExprId string(uint32_t min_length, uint32_t max_length);  // with its quotes; lengths in code points
  ExprId key_tail();  // any characters in their canonical spelling, then the closing quote
  ExprId integer();
  ExprId number();
  ExprId any_value();
  ExprId any_object();
  ExprId any_array();
  ExprId literal(const SchemaJson& value);  // this value, with optional white space

  // Return the remainder of an object after {, and of an array after [. `members`, `counts`, `filled`: see
  // GrammarSpec::list().
  ExprId object_rest(const std::vector<ExprId>& members, std::string counts, bool filled = false);
  ExprId array_rest(ExprId items);

 private:
  RuleId string_rule();
  GrammarSpec& spec_;
  ExprId space_ = -1, integer_ = -1, number_ = -1, key_tail_ = -1;
  RuleId string_ = -1, object_ = -1, array_ = -1;
};

// Returns the canonical spelling of `text` in a JSON string, without the quotes.
std::string spell_json(std::string_view text);

}  // namespace millrace
