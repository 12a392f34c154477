// From a schema with references and combinations to plain alternatives: each one a list of schema parts that must all
// hold, with nothing left in them but keywords about the value itself.
//
//   {"$ref": A, "allOf": [B, {"anyOf": [C, D]}]}   ->   [self A B C], [self A B D]
//
// Conditions become alternatives: if S then T else E is (S and T) or (not S and E). `not` is carried inwards to the
// keywords, where that can be said exactly.
#pragma once

#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/schema_document.h"

namespace millrace {

// Keywords of schemas that negation makes: no JSON text holds such names, since they hold a raw control character that
// the schema's own keys cannot bring in unnoticed.
inline constexpr const char* kNotEnum = "\x01notEnum";
inline constexpr const char* kNotPattern = "\x01notPattern";
inline constexpr const char* kNotInteger = "\x01notInteger";

struct SchemaPart {
  const SchemaJson* schema = nullptr;
  int32_t parent = -1;     // the part that brought it in, for what "unevaluated" sees
  bool reference = false;  // of an old draft: nothing but its $ref counts
};
using FlatSchema = std::vector<SchemaPart>;
using SchemaConjunction = std::vector<const SchemaJson*>;  // all of them must hold

class SchemaFlattener {
 public:
  SchemaFlattener(SchemaDocument& document, const GrammarLimits& limits, std::vector<std::string>& notes)
      : document_(document), limits_(limits), notes_(notes) {}

  // None: nothing satisfies them. Errors: user (not a schema), unsupported (with the place).
  Result<std::vector<FlatSchema>> flatten(const SchemaConjunction& all);

 private:
  using Options = std::vector<SchemaConjunction>;
  struct Choice {
    Options options;
    int32_t parent = -1;
  };
  struct State {
    FlatSchema parts;
    std::vector<Choice> choices;
    std::vector<std::pair<const SchemaJson*, int32_t>> todo;
  };
  Result<void> expand(State state, std::vector<FlatSchema>& out);
  Result<bool> take(State& state, const SchemaJson& schema, int32_t parent);
  Result<void> take_combinations(State& state, const SchemaJson& schema, int32_t self);
  Result<void> take_conditions(State& state, const SchemaJson& schema, int32_t self);
  Result<Options> negate(const SchemaJson& schema, int64_t depth);
  Result<Options> negate_keyword(const SchemaJson& schema, const std::string& key, const SchemaJson& value, int64_t depth);
  bool exclusive(const SchemaJson& a, const SchemaJson& b, int depth) const;
  void note(std::string text);

  SchemaDocument& document_;
  const GrammarLimits& limits_;
  std::vector<std::string>& notes_;
  int64_t work_ = 0;
};

// Keywords that say nothing about which values are valid.
bool is_annotation(std::string_view keyword);

}  // namespace millrace
