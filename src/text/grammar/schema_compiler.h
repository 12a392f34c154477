// SchemaCompiler: compiles schemas to rules. Scalars are expanded in place. Objects and lists become separate rules,
// one for each distinct set of schema parts that apply together. These rules are built from a work queue, so that
// recursive schemas terminate.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <unordered_map>

#include "text/grammar/schema_merge.h"

namespace millrace {

class SchemaCompiler {
 public:
  SchemaCompiler(GrammarSpec& spec, SchemaDocument& document, const GrammarLimits& limits, GrammarNotes& notes,
                 SchemaFlattener::OneOf one_of)
      : spec_(spec),
        document_(document),
        limits_(limits),
        notes_(notes),
        json_(spec),
        probe_limits_(limits),
        probe_(document, probe_limits_, probe_notes_, SchemaFlattener::OneOf::loose, nullptr, nullptr),
        flattener_(
            document, limits, notes, one_of, [this](const SchemaConjunction& all) { return surely_empty(all, 0); },
            [this](const FlatSchema& parts) { return surely_empty_alternative(parts, 2); }) {
    probe_limits_.alternatives = 64;
  }

  Result<void> compile();
  bool turned() const { return flattener_.turned(); }  // true: a oneOf was enforced by negating its schemas

 private:
  struct Calls {  // how to call the rule of an object or a list
    RuleId rule = -1;
    uint32_t need = 0, room = kNoLimit;
  };
  struct Task {
    bool object = false;
    RuleId rule = -1;
    FlatSchema parts;
    MergedSchema merged;
    bool counted = false;          // ticks count the members or items
    bool enumerated = false;       // states count the members of an object
    std::optional<ExprId> unique;  // a list of distinct items
  };
  struct KeyGroup {   // keys that no schema part names, and the schemas of their values
    ExprId key = -1;  // the keys with the closing quote
    Dfa keys;         // the keys without the closing quote
    SchemaConjunction values;
  };

  Result<ExprId> value(const SchemaConjunction& all);
  Result<ExprId> alternative(const FlatSchema& parts);
  Result<ExprId> literals(const FlatSchema& parts, const MergedSchema& merged);
  Result<ExprId> string_value(const MergedSchema& merged);
  Result<ExprId> container(bool object, const FlatSchema& parts, const MergedSchema& merged);
  // Adds the automaton to the grammar. Counts its states against the total at once, so that an oversized grammar is
  // rejected early.
  Result<ExprId> automaton(Dfa dfa);
  bool never(ExprId expr) const { return spec_.at(expr).kind == Expr::Kind::never; }
  ExprId as_rule(const std::string& name, ExprId body);

  // schema_list_graph.cc
  struct ListGraph {  // the possible orders of items in a list or an object
    struct Edge {
      ExprId item = -1;
      size_t to = 0;
    };
    std::vector<std::vector<Edge>> edges;  // [node]; the list starts at node 0
    std::vector<uint8_t> done;             // [node]: the list may end here
    size_t add(bool may_end) {
      edges.emplace_back();
      done.push_back(may_end);
      return done.size() - 1;
    }
  };
  Result<ExprId> list_graph(const ListGraph& graph);
  Result<ExprId> counted_members(const std::vector<ExprId>& members, const std::string& counts,
                                 const std::vector<ExprId>& last, const MergedSchema& merged);
  bool sees(const FlatSchema& parts, size_t from, size_t part) const;

  // schema_objects.cc
  Result<void> build_object(const Task& task);
  ExprId object_rest(std::vector<KeyedMembers::Member> members, ExprId quote, std::vector<ExprId> others, bool filled);
  Result<void> plan_counts(const FlatSchema& parts, const MergedSchema& merged, Calls& calls, Task& task);
  std::vector<std::string> named_keys(const FlatSchema& parts) const;
  Result<SchemaConjunction> values_of_key(const FlatSchema& parts, const std::string& key);
  Result<std::vector<KeyGroup>> other_keys(const FlatSchema& parts, const std::vector<std::string>& named,
                                           std::string_view what);
  Result<bool> key_allowed(const FlatSchema& parts, const std::string& key);
  Result<Dfa> narrow_keys(const FlatSchema& parts, Dfa keys, std::string_view what);
  Result<ExprId> key_expr(Dfa keys);
  bool unevaluated(const FlatSchema& parts, size_t at, const std::function<bool(const SchemaJson&)>& evaluates) const;
  Result<const Dfa*> pattern(const std::string& text);
  const SchemaJson* property(const SchemaJson& schema, const std::string& key);

  // schema_demands.cc
  Result<std::vector<FlatSchema>> settle_demands(const FlatSchema& parts);
  Result<const Dfa*> demanded_keys(const SchemaJson& demand);
  Result<std::vector<std::vector<ExprId>>> demanded_members(const FlatSchema& parts,
                                                            const std::vector<KeyGroup>& groups, ExprId quote,
                                                            ExprId colon);

  // schema_arrays.cc
  struct ItemDemand {  // from `from` on, `min` to `max` items satisfy `wanted`
    size_t from = 0;
    const SchemaJson* wanted = nullptr;
    const SchemaJson* origin = nullptr;
    uint32_t min = 1, max = kNoLimit;
  };
  struct ArrayShape {
    std::vector<SchemaConjunction> prefix;
    SchemaConjunction items;
    std::vector<ItemDemand> demands;
    bool more = true;  // items allowed after the prefix
  };
  Result<void> build_array(const Task& task);
  Result<ArrayShape> array_shape(const FlatSchema& parts, const MergedSchema& merged) const;
  Result<void> unevaluated_items(const FlatSchema& parts, size_t at,
                                 std::vector<std::pair<size_t, const SchemaJson*>>& out) const;
  Result<void> add_item_demands(const SchemaJson& schema, std::vector<ItemDemand>& out) const;
  Result<std::optional<std::vector<SchemaJson>>> few_values(const SchemaConjunction& items);
  Result<std::optional<ExprId>> unique_list(const ArrayShape& shape, const MergedSchema& merged);
  Result<ExprId> demanding_list(const ArrayShape& shape, const MergedSchema& merged);

  // schema_empty.cc
  bool surely_empty(const SchemaConjunction& all, int depth);
  bool surely_empty_alternative(const FlatSchema& parts, int depth);
  bool surely_no_object(const FlatSchema& parts, const MergedSchema& merged, int depth);
  bool surely_no_array(const FlatSchema& parts, const MergedSchema& merged, int depth);

  GrammarSpec& spec_;
  SchemaDocument& document_;
  const GrammarLimits& limits_;
  GrammarNotes& notes_;
  JsonRules json_;
  GrammarLimits probe_limits_;
  GrammarNotes probe_notes_;
  SchemaFlattener probe_;
  int64_t probes_ = 0;
  SchemaFlattener flattener_;
  std::map<std::set<const SchemaJson*>, ExprId> values_;
  std::map<std::pair<bool, std::set<const SchemaJson*>>, Calls> containers_;
  std::map<std::string, Dfa> patterns_;
  std::map<const SchemaJson*, std::unordered_map<std::string, const SchemaJson*>>
      properties_;  // by `properties` object
  std::map<const SchemaJson*, Dfa> demanded_keys_;
  std::map<ExprId, RuleId> item_rules_;
  RuleId comma_ = -1;
  std::deque<Task> tasks_;
  int64_t states_ = 0;  // states of all automata so far
};

}  // namespace millrace
