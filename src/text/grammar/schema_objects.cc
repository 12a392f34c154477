// Objects: the properties that the schema names, in its order, each at most once; then other keys, grouped by the
// patterns that they match.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "text/grammar/pattern.h"
#include "text/grammar/schema_compiler.h"

namespace millrace {
namespace {

constexpr size_t kMaxPatterns = 4;  // whose combinations are enumerated
constexpr size_t kLongList = 64;    // members; longer lists share a tree of keys, see GrammarSpec::keyed

}  // namespace

Result<const Dfa*> SchemaCompiler::pattern(const std::string& text) {
  auto found = patterns_.find(text);
  if (found == patterns_.end()) {
    MILLRACE_TRY(Dfa dfa, schema_pattern_dfa(text, limits_));
    found = patterns_.emplace(text, std::move(dfa)).first;
  }
  return &found->second;
}

std::vector<std::string> SchemaCompiler::named_keys(const FlatSchema& parts) const {
  std::vector<std::string> names;
  std::set<std::string> known;
  const auto add = [&](const std::string& name) {
    if (known.insert(name).second) names.push_back(name);
  };
  for (const SchemaPart& part : parts)
    if (const SchemaJson* properties = part.reference ? nullptr : member(*part.schema, "properties");
        properties && properties->is_object())
      for (const auto& [name, schema] : properties->items()) add(name);
  for (const SchemaPart& part : parts)
    if (const SchemaJson* required = part.reference ? nullptr : member(*part.schema, "required");
        required && required->is_array())
      for (const SchemaJson& name : *required)
        if (name.is_string()) add(name.get<std::string>());
  return names;
}

// The subschema of one key. Indexed, because ordered JSON objects are searched linearly.
const SchemaJson* SchemaCompiler::property(const SchemaJson& schema, const std::string& key) {
  const SchemaJson* properties = member(schema, "properties");
  if (!properties || !properties->is_object()) return nullptr;
  auto& known = properties_[properties];
  if (known.empty())
    for (const auto& [name, inner] : properties->items()) known.emplace(name, &inner);
  const auto found = known.find(key);
  return found == known.end() ? nullptr : found->second;
}

// Whether an "unevaluated" keyword of the part at `from` sees what `part` evaluates: it sees its own schema and those
// below, except for negated ones.
bool SchemaCompiler::sees(const FlatSchema& parts, size_t from, size_t part) const {
  if (parts[part].reference) return false;
  for (size_t up = part;; up = static_cast<size_t>(parts[up].parent)) {
    if (document_.adopted(*parts[up].schema)) return false;
    if (up == from) return true;
    if (parts[up].parent < 0) return false;
  }
}

// Whether neither the part at `at` nor any part below it evaluates the property.
bool SchemaCompiler::unevaluated(const FlatSchema& parts, size_t at,
                                 const std::function<bool(const SchemaJson&)>& evaluates) const {
  for (size_t p = 0; p < parts.size(); ++p) {
    if (!sees(parts, at, p)) continue;
    if (evaluates(*parts[p].schema) || (p != at && parts[p].schema->contains("unevaluatedProperties"))) return false;
  }
  return true;
}

Result<SchemaConjunction> SchemaCompiler::values_of_key(const FlatSchema& parts, const std::string& key) {
  SchemaConjunction out;
  const std::string spelled = spell_json(key);
  const auto matches = [&](const SchemaJson& schema, bool collect) -> Result<bool> {
    bool any = false;
    if (const SchemaJson* found = property(schema, key)) {
      any = true;
      if (collect) out.push_back(found);
    }
    if (const SchemaJson* patterns = member(schema, "patternProperties"); patterns && patterns->is_object()) {
      for (const auto& [text, inner] : patterns->items()) {
        MILLRACE_TRY(const Dfa* dfa, pattern(text));
        if (!dfa->accepts(spelled)) continue;
        any = true;
        if (collect) out.push_back(&inner);
      }
    }
    return any;
  };
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].reference) continue;
    const SchemaJson& schema = *parts[p].schema;
    MILLRACE_TRY(const bool any, matches(schema, true));
    if (const SchemaJson* others = member(schema, "additionalProperties"); others && !any) out.push_back(others);
    if (const SchemaJson* rest = member(schema, "unevaluatedProperties")) {
      const bool left = unevaluated(parts, p, [&](const SchemaJson& other) {
        const auto found = matches(other, false);
        return (found.ok() && *found) || other.contains("additionalProperties");
      });
      if (left) out.push_back(rest);
    }
  }
  return out;
}

Result<bool> SchemaCompiler::key_allowed(const FlatSchema& parts, const std::string& key) {
  if (std::ranges::none_of(parts, [](const SchemaPart& p) { return p.schema->contains("propertyNames"); })) return true;
  GrammarSpec spec;
  MILLRACE_TRY(Dfa one, make_dfa(spec, spec.bytes(spell_json(key)), limits_, "key"));
  MILLRACE_TRY(const Dfa kept, narrow_keys(parts, std::move(one), "propertyNames"));
  return !kept.empty();
}

// Restricts the keys to those that every propertyNames allows.
Result<Dfa> SchemaCompiler::narrow_keys(const FlatSchema& parts, Dfa keys, std::string_view what) {
  for (const SchemaPart& part : parts) {
    const SchemaJson* names = part.reference ? nullptr : member(*part.schema, "propertyNames");
    if (!names) continue;
    MILLRACE_TRY(const std::vector<FlatSchema> alternatives, flattener_.flatten({names}));
    GrammarSpec spec;
    std::vector<ExprId> ways;
    for (const FlatSchema& alternative : alternatives) {
      MILLRACE_TRY(MergedSchema merged, merge_schema(alternative, document_, notes_));
      if (!(merged.types & kString)) continue;
      if (merged.values) {
        for (const SchemaJson& value : *merged.values) {
          MILLRACE_TRY(const bool allowed, allows_value(merged, value, limits_));
          if (allowed && value.is_string()) ways.push_back(spec.bytes(spell_json(value.get<std::string>())));
        }
        continue;
      }
      MILLRACE_TRY(Dfa dfa, string_dfa(merged.strings, limits_, what));
      ways.push_back(spec.dfa(std::make_shared<const Dfa>(std::move(dfa))));
    }
    MILLRACE_TRY(const Dfa allowed, make_dfa(spec, spec.choice(std::move(ways)), limits_, what));
    MILLRACE_TRY(keys, combine(keys, allowed, DfaProduct::both, limits_, what));
  }
  return keys;
}

// The keys with their closing quote. From the state on where every continuation is accepted, the shared rule of JSON
// key tails is called.
Result<ExprId> SchemaCompiler::key_expr(Dfa keys) {
  const ExprId tail = json_.key_tail();
  const auto classes = static_cast<size_t>(keys.classes);
  const auto at = [&](int32_t s, uint8_t byte) { return keys.step(s, byte); };
  // A state allows everything if it accepts and every character leads back to such a state. Computed as a greatest
  // fixed point, by removing states.
  const int32_t n = keys.size();
  std::vector<uint8_t> all(static_cast<size_t>(n), 0);
  for (int32_t s = 0; s < n; ++s) all[static_cast<size_t>(s)] = keys.accepting[static_cast<size_t>(s)];
  const std::vector<std::string> samples = {"a",   "\\\"", "\\\\",    "\\b",     "\\f",     "\\n",
                                            "\\r", "\\t",  "\\u0000", "\\u001f", "\\u001F", "\x7F"};
  for (bool changed = true; changed;) {
    changed = false;
    for (int32_t s = n; s-- > 0;) {  // backwards: later parts of a key have larger numbers
      if (!all[static_cast<size_t>(s)]) continue;
      const auto keeps = [&](std::string_view text) {
        int32_t to = s;
        for (size_t i = 0; i < text.size() && to >= 0; ++i) to = at(to, static_cast<uint8_t>(text[i]));
        return to >= 0 && all[static_cast<size_t>(to)];
      };
      bool whole = std::ranges::all_of(samples, keeps);
      for (int c = 0x20; c < 0x7F && whole; ++c)
        if (c != '"' && c != '\\') whole = keeps(std::string(1, static_cast<char>(c)));
      for (uint8_t lead = 0xC2; lead <= 0xF4 && whole; ++lead) {  // every path through each lead byte
        const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        const auto through = [&](auto&& self, int32_t state, size_t place) -> bool {
          if (state < 0) return false;
          if (place == length) return all[static_cast<size_t>(state)];
          const int first = place == 1 && lead == 0xE0 ? 0xA0 : place == 1 && lead == 0xF0 ? 0x90 : 0x80;
          const int last = place == 1 && lead == 0xED ? 0x9F : place == 1 && lead == 0xF4 ? 0x8F : 0xBF;
          int32_t before = -2;
          for (int byte = first; byte <= last; ++byte) {
            const int32_t to = at(state, static_cast<uint8_t>(byte));
            if (to == before) continue;
            before = to;
            if (!self(self, to, place + 1)) return false;
          }
          return true;
        };
        whole = through(through, at(s, lead), 1);
      }
      for (char high : {'0', '1'})  // control characters
        for (char low : std::string_view("0123456789abcdefABCDEF")) {
          static constexpr std::string_view kShort = "89aAcCdD";  // those with a short escape
          if (whole && !(high == '0' && kShort.find(low) != std::string_view::npos))
            whole = keeps(std::string("\\u00") + high + low);
        }
      if (whole) continue;
      all[static_cast<size_t>(s)] = 0;
      changed = true;
    }
  }
  const Expr call = spec_.at(tail);
  const auto end = static_cast<int32_t>(keys.accepting.size());
  for (int32_t s = 0; s < n; ++s) {
    const auto state = static_cast<size_t>(s);
    if (all[state]) {
      for (size_t c = 0; c < classes; ++c) keys.next[state * classes + c] = -1;
      keys.calls[state] = {{call.rule, call.need, call.room, end}};
    } else if (keys.accepting[state]) {
      keys.next[state * classes + keys.class_of['"']] = end;
    }
    keys.accepting[state] = 0;
  }
  keys.next.insert(keys.next.end(), classes, -1);
  keys.accepting.push_back(1);
  keys.ticks.push_back(0);
  keys.calls.emplace_back();
  return automaton(std::move(keys));
}

Result<std::vector<SchemaCompiler::KeyGroup>> SchemaCompiler::other_keys(const FlatSchema& parts,
                                                                         const std::vector<std::string>& named,
                                                                         std::string_view what) {
  std::vector<std::string> texts;
  for (const SchemaPart& part : parts)
    if (const SchemaJson* patterns = part.reference ? nullptr : member(*part.schema, "patternProperties");
        patterns && patterns->is_object())
      for (const auto& [text, schema] : patterns->items())
        if (std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
  if (texts.size() > kMaxPatterns)
    return Error::unsupported(fmt::format("{}/patternProperties: more than {} patterns", what, kMaxPatterns));

  // The quote gets its own byte class, so that key_expr() can add an edge for it.
  GrammarSpec spec;
  const ExprId any = spec.repeat(spec.chars(any_char(), Spelling::json), 0, kNoLimit);
  std::vector<ExprId> names{spec.bytes("\"")};  // not the spelling of any key
  for (const std::string& name : named) names.push_back(spec.bytes(spell_json(name)));
  MILLRACE_TRY(Dfa keys, make_dfa(spec, any, limits_, what));
  MILLRACE_TRY(const Dfa taken, make_dfa(spec, spec.choice(std::move(names)), limits_, what));
  MILLRACE_TRY(keys, combine(keys, taken, DfaProduct::first_only, limits_, what));
  MILLRACE_TRY(keys, narrow_keys(parts, std::move(keys), what));

  std::vector<KeyGroup> groups;
  for (size_t subset = 0; subset < size_t{1} << texts.size(); ++subset) {
    const auto in_subset = [&](const std::string& text) {
      return subset >> (std::ranges::find(texts, text) - texts.begin()) & 1;
    };
    KeyGroup group;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (parts[p].reference) continue;
      const SchemaJson& schema = *parts[p].schema;
      const auto evaluates = [&](const SchemaJson& other) {
        const SchemaJson* patterns = member(other, "patternProperties");
        if (other.contains("additionalProperties")) return true;
        if (patterns && patterns->is_object())
          for (const auto& [text, inner] : patterns->items())
            if (in_subset(text)) return true;
        return false;
      };
      bool any_pattern = false;
      if (const SchemaJson* patterns = member(schema, "patternProperties"); patterns && patterns->is_object())
        for (const auto& [text, inner] : patterns->items())
          if (in_subset(text)) group.values.push_back(&inner), any_pattern = true;
      if (const SchemaJson* others = member(schema, "additionalProperties"); others && !any_pattern)
        group.values.push_back(others);
      if (const SchemaJson* rest = member(schema, "unevaluatedProperties"); rest && unevaluated(parts, p, evaluates))
        group.values.push_back(rest);
    }
    if (std::ranges::any_of(group.values, [](const SchemaJson* s) { return *s == false; })) continue;
    Dfa some = keys;
    for (size_t t = 0; t < texts.size(); ++t) {
      MILLRACE_TRY(const Dfa* dfa, pattern(texts[t]));
      MILLRACE_TRY(some,
                   combine(some, *dfa, subset >> t & 1 ? DfaProduct::both : DfaProduct::first_only, limits_, what));
    }
    if (some.empty()) continue;
    MILLRACE_TRY(group.key, key_expr(some));
    group.keys = std::move(some);
    groups.push_back(std::move(group));
  }
  return groups;
}

// Plans how the bounds on the number of members are enforced. Counted objects begin with their required members, so
// that there is always room for them. Keys that the schema does not name may repeat, so that beyond the required
// members only one more can be guaranteed. If all keys are named, states count them.
Result<void> SchemaCompiler::plan_counts(const FlatSchema& parts, const MergedSchema& merged, Calls& calls,
                                         Task& task) {
  const auto required = static_cast<uint32_t>(merged.required.size());
  const bool demanding =
      std::ranges::any_of(parts, [](const SchemaPart& p) { return p.schema->contains(kOtherProperty); });
  if (merged.max_properties < required) {
    task.counted = true;
    calls.need = 1;
    calls.room = 0;
    return {};
  }
  const uint32_t least = merged.min_properties > required ? merged.min_properties - required : 0;
  const bool simple = least == 0 || (least == 1 && required == 0);  // the list is not empty: see build_object
  if (simple && !demanding) {
    calls.room = merged.max_properties;
    task.counted = calls.room != kNoLimit;
    return {};
  }
  if (simple && merged.max_properties == kNoLimit) return {};
  MILLRACE_TRY(const std::vector<KeyGroup> groups, other_keys(parts, named_keys(parts), merged.path));
  if (groups.empty() ||
      (demanding && merged.min_properties <= required + 1)) {  // a demand adds a member that is not required
    task.enumerated = true;
    return {};
  }
  if (least > 1 || demanding)
    return Error::unsupported(
        fmt::format("JSON schema: {}/minProperties: {} with {} of them required is not supported where other property "
                    "names are arbitrary",
                    merged.path, merged.min_properties, merged.required.size()));
  task.counted = true;
  calls.room = merged.max_properties;
  calls.need = merged.min_properties;
  return {};
}

Result<void> SchemaCompiler::build_object(const Task& task) {
  const std::string what = task.merged.path.empty() ? "JSON schema" : "JSON schema: " + task.merged.path;
  for (const SchemaPart& part : task.parts)
    for (const char* key : {"properties", "patternProperties"})
      if (const SchemaJson* found = part.reference ? nullptr : member(*part.schema, key); found && !found->is_object())
        return Error::user(fmt::format("JSON schema: {}/{}: must be an object", document_.path(*part.schema), key));
  const ExprId quote = task.counted ? spec_.sequence({spec_.bytes("\""), spec_.tick()}) : spec_.bytes("\"");
  const ExprId colon = spec_.sequence({spec_.bytes(":"), json_.space()});
  std::vector<KeyedMembers::Member> members;
  std::vector<std::string> named = named_keys(task.parts);
  const std::set<std::string> must(task.merged.required.begin(), task.merged.required.end());
  const auto is_required = [&](const std::string& name) { return must.contains(name); };
  if (task.counted) std::stable_partition(named.begin(), named.end(), is_required);
  for (const std::string& name : named) {
    MILLRACE_TRY(const SchemaConjunction schemas, values_of_key(task.parts, name));
    MILLRACE_TRY(const bool allowed, key_allowed(task.parts, name));
    const bool required = is_required(name);
    MILLRACE_TRY(const ExprId content, value(schemas));
    if (!allowed || never(content)) {
      if (!required) continue;
      spec_.set_body(task.rule, spec_.never());
      return {};
    }
    members.push_back({spell_json(name) + "\"", content, required});
    MILLRACE_TRY_VOID(spec_.check());
  }
  MILLRACE_TRY(const std::vector<KeyGroup> groups, other_keys(task.parts, named, what));
  std::vector<ExprId> others;
  for (const KeyGroup& group : groups) {
    MILLRACE_TRY(const ExprId content, value(group.values));
    if (!never(content)) others.push_back(spec_.sequence({quote, group.key, colon, content}));
  }
  MILLRACE_TRY(const auto demanded, demanded_members(task.parts, groups, quote, colon));
  const bool filled = task.merged.min_properties > 0 && task.merged.required.empty();
  if (!task.enumerated && demanded.size() == 1 && demanded[0].empty()) {
    spec_.set_body(task.rule, filled && members.empty() && others.empty()
                                  ? spec_.never()
                                  : object_rest(std::move(members), quote, std::move(others), filled));
    return {};
  }
  std::vector<ExprId> all, ways;
  std::string counts;
  for (const KeyedMembers::Member& one : members) {
    all.push_back(spec_.sequence({quote, spec_.bytes(one.key), colon, one.content}));
    counts += one.required ? '1' : '?';
  }
  if (!others.empty()) {
    all.push_back(spec_.choice(std::move(others)));
    counts += '*';
  }
  for (const std::vector<ExprId>& last : demanded) {
    if (task.enumerated) {
      MILLRACE_TRY(const ExprId list, counted_members(all, counts, last, task.merged));
      ways.push_back(spec_.sequence({json_.space(), list, json_.space(), spec_.bytes("}")}));
      continue;
    }
    std::vector<ExprId> with = all;
    with.insert(with.end(), last.begin(), last.end());
    ways.push_back(json_.object_rest(with, counts + std::string(last.size(), '1')));
  }
  spec_.set_body(task.rule, spec_.choice(std::move(ways)));
  return {};
}

// The members and the closing brace. In a long list the text between two keys is a rule per kind of value, so that a
// member costs only a few states besides its key.
ExprId SchemaCompiler::object_rest(std::vector<KeyedMembers::Member> members, ExprId quote, std::vector<ExprId> others,
                                   bool filled) {
  const ExprId colon = spec_.sequence({spec_.bytes(":"), json_.space()});
  if (members.size() <= kLongList) {
    std::vector<ExprId> all;
    std::string counts;
    for (const KeyedMembers::Member& one : members) {
      all.push_back(spec_.sequence({quote, spec_.bytes(one.key), colon, one.content}));
      counts += one.required ? '1' : '?';
    }
    if (!others.empty()) {
      all.push_back(spec_.choice(std::move(others)));
      counts += '*';
    }
    return json_.object_rest(all, counts, filled);
  }
  const auto as_rule = [&](const char* name, ExprId body) {
    const RuleId rule = spec_.add_rule(name);
    spec_.set_body(rule, body);
    return spec_.call(rule);
  };
  std::map<ExprId, ExprId> contents;
  for (KeyedMembers::Member& one : members) {
    const auto [entry, fresh] = contents.try_emplace(one.content, -1);
    if (fresh) entry->second = as_rule("a member", spec_.sequence({colon, one.content}));
    one.content = entry->second;
  }
  KeyedMembers list{as_rule("between members", json_.comma()), quote, std::move(members), -1, filled};
  if (!others.empty()) list.others = spec_.choice(std::move(others));
  return spec_.sequence({json_.space(), spec_.keyed(std::move(list)), json_.space(), spec_.bytes("}")});
}

}  // namespace millrace
