// SchemaCompiler: from schemas to rules. A value is written out in place; objects and lists are rules of their own, one
// for each set of schema parts that meet in one place, made once and in turn, so that recursion needs no care.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "text/grammar/schema_merge.h"

namespace millrace {

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarSpec& spec, SchemaDocument& document, const GrammarLimits& limits, std::vector<std::string>& notes)
      : spec_(spec), document_(document), limits_(limits), notes_(notes), json_(spec), flattener_(document, limits, notes) {}

  Result<void> compile();

 private:
  struct Calls {  // how a container's rule is called
    RuleId rule = -1;
    uint32_t need = 0, room = kNoLimit;
  };
  struct Task {
    bool object = false;
    RuleId rule = -1;
    FlatSchema parts;
    MergedSchema merged;
    bool counted = false;
  };
  struct KeyGroup {  // keys that no part names, and what their values must be
    ExprId key = -1;  // with its closing quote
    SchemaConjunction values;
  };

  Result<ExprId> value(const SchemaConjunction& all);
  Result<ExprId> alternative(const FlatSchema& parts);
  Result<ExprId> literals(const FlatSchema& parts, const MergedSchema& merged);
  Result<ExprId> string_value(const MergedSchema& merged);
  Result<ExprId> container(bool object, const FlatSchema& parts, const MergedSchema& merged);
  // A part of the grammar, counted against the whole's size: what is refused in the end is refused before it costs time.
  Result<ExprId> automaton(Dfa dfa);
  bool never(ExprId expr) const { return spec_.at(expr).kind == Expr::Kind::never; }

  // schema_objects.cc
  Result<void> build_object(const Task& task);
  ExprId object_rest(std::vector<KeyedMembers::Member> members, ExprId quote, std::vector<ExprId> others, bool filled);
  Result<bool> plan_counts(const FlatSchema& parts, const MergedSchema& merged, Calls& calls);
  std::vector<std::string> named_keys(const FlatSchema& parts) const;
  Result<SchemaConjunction> values_of_key(const FlatSchema& parts, const std::string& key);
  Result<std::vector<KeyGroup>> other_keys(const FlatSchema& parts, const std::vector<std::string>& named, std::string_view what);
  Result<bool> key_allowed(const FlatSchema& parts, const std::string& key);
  Result<Dfa> narrow_keys(const FlatSchema& parts, Dfa keys, std::string_view what);
  Result<ExprId> key_expr(Dfa keys);
  bool unevaluated(const FlatSchema& parts, size_t at, const std::function<bool(const SchemaJson&)>& evaluates) const;
  Result<const Dfa*> pattern(const std::string& text);
  const SchemaJson* property(const SchemaJson& schema, const std::string& key);

  // schema_arrays.cc
  struct ArrayShape {
    std::vector<SchemaConjunction> prefix;
    SchemaConjunction items;
    bool more = true;  // than the prefix
  };
  Result<void> build_array(const Task& task);
  Result<ArrayShape> array_shape(const FlatSchema& parts, const MergedSchema& merged) const;
  Result<ExprId> unique_list(const ArrayShape& shape, const MergedSchema& merged);

  GrammarSpec& spec_;
  SchemaDocument& document_;
  const GrammarLimits& limits_;
  std::vector<std::string>& notes_;
  JsonRules json_;
  SchemaFlattener flattener_;
  std::map<std::set<const SchemaJson*>, ExprId> values_;
  std::map<std::pair<bool, std::set<const SchemaJson*>>, Calls> containers_;
  std::map<std::string, Dfa> patterns_;
  std::map<const SchemaJson*, std::unordered_map<std::string, const SchemaJson*>> properties_;  // by the schema's list of them
  std::deque<Task> tasks_;
  int64_t states_ = 0;  // of all automata so far
};

}  // namespace millrace
