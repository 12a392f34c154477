// Demands: what negating an object's schema requires, namely a property whose name and value violate it.
//
//   not {"additionalProperties": S, "properties": {"a": ..}}   ->   some key other than "a" whose value breaks S
//
// Either it is a property that the schema names, which is a separate alternative, or another one: that one is last in
// the object, so that no later member with the same name overrides it.
#include <fmt/format.h>

#include <algorithm>

#include "text/grammar/pattern.h"
#include "text/grammar/schema_compiler.h"

namespace millrace {
namespace {

constexpr size_t kMaxDemands = 4;  // whose combinations are enumerated
constexpr size_t kMaxCovers = 64;  // sets of members that satisfy all demands

struct Witness {  // keys of one group that satisfy the same demands
  size_t meets = 0;
  ExprId member = -1;
};

// All minimal sets of witnesses that satisfy all demands.
void find_covers(const std::vector<Witness>& all, size_t open, std::vector<size_t>& chosen,
                 std::vector<std::vector<size_t>>& out) {
  if (open == 0) {
    std::vector<size_t> cover = chosen;
    std::ranges::sort(cover);
    if (std::ranges::find(out, cover) == out.end()) out.push_back(std::move(cover));
    return;
  }
  const size_t first = open & (~open + 1);
  for (size_t w = 0; w < all.size() && out.size() <= kMaxCovers; ++w) {
    if (!(all[w].meets & first)) continue;
    chosen.push_back(w);
    find_covers(all, open & ~all[w].meets, chosen, out);
    chosen.pop_back();
  }
}

}  // namespace

// The keys that a demand applies to.
Result<const Dfa*> SchemaCompiler::demanded_keys(const SchemaJson& demand) {
  auto found = demanded_keys_.find(&demand);
  if (found != demanded_keys_.end()) return &found->second;
  GrammarSpec spec;
  MILLRACE_TRY(Dfa keys,
               make_dfa(spec, spec.repeat(spec.chars(any_char(), Spelling::json), 0, kNoLimit), limits_, "key"));
  const auto narrow = [&](const Dfa& other, DfaProduct product) -> Result<void> {
    MILLRACE_TRY(keys, combine(keys, other, product, limits_, "key"));
    return {};
  };
  if (const SchemaJson* text = member(demand, "pattern")) {
    MILLRACE_TRY(const Dfa* dfa, pattern(text->get<std::string>()));
    MILLRACE_TRY_VOID(narrow(*dfa, DfaProduct::both));
  }
  if (const SchemaJson* texts = member(demand, "exceptPatterns"))
    for (const SchemaJson& text : *texts) {
      MILLRACE_TRY(const Dfa* dfa, pattern(text.get<std::string>()));
      MILLRACE_TRY_VOID(narrow(*dfa, DfaProduct::first_only));
    }
  if (const SchemaJson* names = member(demand, "except"); names && !names->empty()) {
    std::vector<ExprId> texts;
    for (const SchemaJson& name : *names) texts.push_back(spec.bytes(spell_json(name.get<std::string>())));
    MILLRACE_TRY(const Dfa named, make_dfa(spec, spec.choice(std::move(texts)), limits_, "key"));
    MILLRACE_TRY_VOID(narrow(named, DfaProduct::first_only));
  }
  if (const SchemaJson* names = member(demand, "names")) {
    const SchemaJson& held = document_.adopt({{"propertyNames", {{kIs, *names}}}}, demand);
    MILLRACE_TRY(keys, narrow_keys({{&held, -1, false}}, std::move(keys), "key"));
  }
  return &demanded_keys_.emplace(&demand, std::move(keys)).first->second;
}

// Replaces each demand by a choice between the properties that the schema names and the others.
Result<std::vector<FlatSchema>> SchemaCompiler::settle_demands(const FlatSchema& parts) {
  std::vector<FlatSchema> out{parts};
  for (size_t p = 0; p < parts.size(); ++p) {
    const SchemaPart& part = parts[p];
    const SchemaJson* demand = part.reference ? nullptr : member(*part.schema, kSomeProperty);
    if (!demand) continue;
    MILLRACE_TRY(const Dfa* keys, demanded_keys(*demand));
    std::vector<const SchemaJson*> ways;
    for (const std::string& name : named_keys(parts)) {
      if (!keys->accepts(spell_json(name))) continue;
      SchemaJson property = SchemaJson::object();
      if (const SchemaJson* value = member(*demand, "value")) property[kIs] = *value;
      ways.push_back(&document_.adopt(
          {{"type", "object"}, {"required", SchemaJson::array({name})}, {"properties", {{name, std::move(property)}}}},
          *demand));
    }
    ways.push_back(&document_.adopt({{"type", "object"}, {kOtherProperty, *demand}}, *demand));
    std::vector<FlatSchema> next;
    for (const FlatSchema& before : out)
      for (const SchemaJson* way : ways) {
        next.push_back(before);
        next.back()[p].schema = way;
      }
    out = std::move(next);
    if (static_cast<int64_t>(out.size()) > limits_.alternatives)
      return Error::unsupported(
          fmt::format("JSON schema: {}: 'not' over its properties produces more than {} alternatives",
                      document_.path(*part.schema), limits_.alternatives));
  }
  return out;
}

// Sets of members that satisfy all demands on other keys; one empty set if there are no demands. The members of a set
// always have different keys.
Result<std::vector<std::vector<ExprId>>> SchemaCompiler::demanded_members(const FlatSchema& parts,
                                                                          const std::vector<KeyGroup>& groups,
                                                                          ExprId quote, ExprId colon) {
  std::vector<const SchemaJson*> demands;
  for (const SchemaPart& part : parts)
    if (const SchemaJson* demand = part.reference ? nullptr : member(*part.schema, kOtherProperty);
        demand && std::ranges::find(demands, demand) == demands.end())
      demands.push_back(demand);
  const auto refuse = [&](std::string_view why) {
    return Error::unsupported(
        fmt::format("JSON schema: {}: 'not' over its properties: {}", document_.path(*demands.front()), why));
  };
  if (demands.size() > kMaxDemands)
    return refuse(fmt::format("more than {} of them at once are not supported", kMaxDemands));
  std::vector<Witness> witnesses;
  for (const KeyGroup& group : groups)
    for (size_t meets = 1; meets < size_t{1} << demands.size(); ++meets) {
      Dfa keys = group.keys;
      SchemaConjunction values = group.values;
      std::set<SchemaJson> wanted;
      for (size_t d = 0; d < demands.size(); ++d) {
        MILLRACE_TRY(const Dfa* some, demanded_keys(*demands[d]));
        MILLRACE_TRY(keys,
                     combine(keys, *some, meets >> d & 1 ? DfaProduct::both : DfaProduct::first_only, limits_, "key"));
        if (!(meets >> d & 1)) continue;
        const SchemaJson* value = member(*demands[d], "value");
        wanted.insert(value ? *value : SchemaJson());
        if (value) values.push_back(&document_.linked(*value));
      }
      if (keys.empty()) continue;
      // Two members, one for each demand, might have the same key, so that the second one would override the first.
      if (wanted.size() > 1) return refuse("several conditions on the same keys are not supported");
      MILLRACE_TRY(const ExprId content, value(values));
      if (never(content)) continue;
      MILLRACE_TRY(const ExprId key, key_expr(std::move(keys)));
      witnesses.push_back({meets, as_rule("a property", spec_.sequence({quote, key, colon, content}))});
    }
  std::vector<std::vector<size_t>> covers;
  std::vector<size_t> chosen;
  find_covers(witnesses, (size_t{1} << demands.size()) - 1, chosen, covers);
  if (covers.size() > kMaxCovers) return refuse("there are too many ways to violate them");
  std::vector<std::vector<ExprId>> out;
  for (const auto& cover : covers) {
    out.emplace_back();
    for (size_t w : cover) out.back().push_back(witnesses[w].member);
  }
  return out;
}

}  // namespace millrace
