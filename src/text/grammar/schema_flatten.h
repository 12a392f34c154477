// SchemaFlattener: resolves references and combinators of a schema into plain alternatives. An alternative is a list of
// schema parts that must all hold; only their keywords about the value itself remain to be considered.
//
//   {"$ref": A, "allOf": [B, {"anyOf": [C, D]}]}   ->   [self A B C], [self A B D]
//
// Conditions become alternatives: if S then T else E is (S and T) or (not S and E); oneOf of A and B is (A and not B)
// or (B and not A). `not` is pushed inwards one keyword at a time (schema_negate.cc). Contradictory alternatives are
// dropped early.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_notes.h"
#include "text/grammar/schema_document.h"

namespace millrace {

// Keywords of schemas that the compiler derives. They begin with a control character. They cannot collide with keys of
// a user's schema, because a schema with such a key is rejected.
inline constexpr const char* kIs = "\x01is";            // a part of the document, see SchemaDocument::link
inline constexpr const char* kNot = "\x01not";          // schema, negated
inline constexpr const char* kNotEnum = "\x01notEnum";  // scalars
inline constexpr const char* kNotPattern = "\x01notPattern";
inline constexpr const char* kNotInteger = "\x01notInteger";
inline constexpr const char* kNotMultipleOf = "\x01notMultipleOf";
inline constexpr const char* kSomeItem = "\x01someItem";  // {from, value}: some item from `from` on satisfies `value`
inline constexpr const char* kSomeProperty =
    "\x01someProperty";  // {pattern, except, exceptPatterns, names, value}: see schema_demands.cc
inline constexpr const char* kOtherProperty = "\x01otherProperty";  // for keys that the schema does not name

enum JsonType : uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllTypes = 127
};

struct SchemaPart {
  const SchemaJson* schema = nullptr;
  int32_t parent = -1;     // index of the part that contains this one, for "unevaluated" keywords; -1: none
  bool reference = false;  // in an old draft: only $ref of this part counts
};
using FlatSchema = std::vector<SchemaPart>;
using SchemaConjunction = std::vector<const SchemaJson*>;  // schemas that must all hold

class SchemaFlattener {
 public:
  enum class OneOf {
    exact,  // by negation, as above; if the result grows too large, like anyOf with a note
    weak,   // like anyOf with a note, unless its schemas exclude each other
    loose,  // like anyOf; parts that cannot be negated are dropped, so the result accepts a superset
  };
  using Empty = std::function<bool(const SchemaConjunction&)>;
  using Dead = std::function<bool(const FlatSchema&)>;

  // `empty`, `dead`: return true if it is certain that no value satisfies all the schemas or parts.
  SchemaFlattener(SchemaDocument& document, const GrammarLimits& limits, GrammarNotes& notes, OneOf one_of, Empty empty,
                  Dead dead)
      : document_(document),
        limits_(limits),
        notes_(notes),
        one_of_(one_of),
        empty_(std::move(empty)),
        dead_(std::move(dead)) {}

  // Returns the alternatives; an empty list: no value satisfies all schemas. Errors: user (not a schema), unsupported
  // (the message has the place).
  Result<std::vector<FlatSchema>> flatten(const SchemaConjunction& all);

  // Returns {kNot: schema}, the same object in every call. "unevaluated" keywords ignore what the negated schema
  // evaluates.
  const SchemaJson& not_of(const SchemaJson& schema);
  bool turned() const { return turned_; }  // true: a oneOf was enforced by negating its schemas

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
    // Known facts about the value, by which most contradictions are detected at once.
    uint8_t types = kAllTypes;
    std::vector<std::string> required, absent;
    std::map<std::string, std::vector<SchemaJson>> constants;  // allowed values of a property
  };
  Result<std::vector<FlatSchema>> flatten_alone(const SchemaConjunction& all);
  Result<std::vector<FlatSchema>> run(const SchemaConjunction& all);
  Result<void> expand(State state, std::vector<FlatSchema>& out, int depth);
  Result<bool> take(State& state, const SchemaJson& schema, int32_t parent);
  Result<void> take_combinations(State& state, const SchemaJson& schema, int32_t self);
  Result<void> take_conditions(State& state, const SchemaJson& schema, int32_t self);
  Result<void> take_links(State& state, const SchemaJson& schema, int32_t self);
  Options exactly_one(const SchemaJson& list, const SchemaJson& schema);
  bool watched(const State& state, int32_t self) const;
  bool possible(State& state, const SchemaJson& schema) const;
  void narrow_constants(State& state, const std::string& name, const SchemaJson& schema) const;
  bool apart(const SchemaJson& a, const SchemaJson& b);

  // schema_negate.cc
  Result<Options> negate(const SchemaJson& schema);
  Result<void> negate_keyword(const SchemaJson& schema, const std::string& key, const SchemaJson& value, Options& out);
  Result<bool> negate_bound(const SchemaJson& schema, const std::string& key, const SchemaJson& value, Options& out);
  Result<bool> negate_object(const SchemaJson& schema, const std::string& key, const SchemaJson& value, Options& out);
  Result<bool> negate_array(const SchemaJson& schema, const std::string& key, const SchemaJson& value, Options& out);
  Result<bool> negate_combination(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                                  Options& out);
  const SchemaJson& is(const SchemaJson& schema) { return document_.adopt({{kIs, document_.link(schema)}}, schema); }
  Options negate_values(const SchemaJson& schema, const SchemaJson& values);

  SchemaDocument& document_;
  const GrammarLimits& limits_;
  GrammarNotes& notes_;
  OneOf one_of_;
  Empty empty_;
  Dead dead_;
  std::map<const SchemaJson*, Options> negated_;
  std::map<std::pair<const SchemaJson*, const SchemaJson*>, bool> apart_;
  int64_t work_ = 0, total_work_ = 0;
  bool weak_now_ = false;  // true: this run treats every oneOf like anyOf
  bool turned_now_ = false, turned_ = false;
};

// Returns true for keywords that do not affect validity.
bool is_annotation(std::string_view keyword);

// Returns a schema that accepts exactly this list or object, member by member.
SchemaJson constant_schema(const SchemaJson& value);

// Returns the JsonType bits of a type name; 0 if it is not a type name.
uint8_t type_bits(const SchemaJson& name);

}  // namespace millrace
