#include "text/grammar/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "text/grammar/gbnf.h"
#include "text/grammar/json_rules.h"
#include "text/grammar/pattern.h"
#include "text/grammar/schema.h"
#include "text/grammar/structure_fields.h"

namespace millrace {
namespace {

constexpr int kMaxStructureDepth = 16;
constexpr size_t kMaxElements = 4096;

class Structure {
 public:
  Structure(GrammarSpec& spec, const GrammarLimits& limits, GrammarNotes& notes)
      : spec_(spec), limits_(limits), notes_(notes) {}

  Result<ExprId> part(const SchemaJson& json, const std::string& where, int depth = 0) {
    if (!json.is_object() || !json.contains("type") || !json["type"].is_string())
      return Error::user(fmt::format("structure: {}: must be an object with a \"type\"", where));
    MILLRACE_TRY_VOID(spec_.check());
    if (depth > kMaxStructureDepth || ++elements_ > kMaxElements)
      return Error::unsupported(fmt::format("structure: {}: more than {} parts, or more than {} nested", where,
                                            kMaxElements, kMaxStructureDepth));
    if (flag(json, "shared")) return shared(json, where, depth);
    MILLRACE_TRY_VOID(take_weakened(json));
    return known_part(json, where, depth);
  }

 private:
  Result<ExprId> known_part(const SchemaJson& json, const std::string& where, int depth) {
    const auto& type = json["type"].get_ref<const std::string&>();
    if (type == "const_string") return literal(json, where);
    if (type == "regex") return regex(json, where);
    if (type == "grammar") return grammar(json, where);
    if (type == "json_schema") return schema(json, where);
    if (type == "any_text") return spec_.repeat(spec_.chars(any_char(), Spelling::utf8), 0, kNoLimit);
    if (type == "sequence" || type == "or") return several(json, where, type == "or", depth);
    if (type == "optional") {
      MILLRACE_TRY(const ExprId content, inner(json, where, depth));
      return spec_.optional(content);
    }
    if (type == "tag") return tag(json, where, depth, "");
    if (type == "text_until") return text_until(json, where);
    if (type == "triggered_tags") return triggered_tags(json, where, depth);
    if (type == "tags_with_separator") return tags_with_separator(json, where, depth);
    if (type == "fields" || type == "listed") return with_definitions(json, where, depth, type == "fields");
    return Error::unsupported(fmt::format("structure: {}: parts of type '{}' are not supported", where, type));
  }

  // Equal parts that are marked as shared become one rule.
  Result<ExprId> shared(const SchemaJson& json, const std::string& where, int depth) {
    SchemaJson content = json;
    content.erase("shared");
    const std::string key = content.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
    if (const auto found = shared_.find(key); found != shared_.end()) return spec_.call(found->second);
    MILLRACE_TRY(const ExprId body, part(content, where, depth));
    const RuleId rule = spec_.add_rule("a shared part");
    spec_.set_body(rule, body);
    shared_.emplace(key, rule);
    return spec_.call(rule);
  }

  // Notes by the author of the structure on what it does not enforce.
  Result<void> take_weakened(const SchemaJson& json) {
    if (!json.contains("weakened") || !json["weakened"].is_array()) return {};
    for (const SchemaJson& one : json["weakened"]) {
      if (!one.is_string()) continue;
      if (flag(json, "strict"))
        return Error::unsupported(
            fmt::format("structure: {}; strict mode requires exact enforcement: change the request or omit strict",
                        one.get<std::string>()));
      notes_.weaken(one.get<std::string>());
    }
    return {};
  }
  Result<std::string> text(const SchemaJson& json, const char* key, const std::string& where) {
    if (!json.contains(key) || !json[key].is_string())
      return Error::user(fmt::format("structure: {}.{}: must be a string", where, key));
    return json[key].get<std::string>();
  }
  Result<const SchemaJson*> list(const SchemaJson& json, const char* key, const std::string& where) {
    if (!json.contains(key) || !json[key].is_array() || json[key].empty())
      return Error::user(fmt::format("structure: {}.{}: must be a non-empty array", where, key));
    return &json[key];
  }
  static bool flag(const SchemaJson& json, const char* key) {
    return json.contains(key) && json[key].is_boolean() && json[key].get<bool>();
  }

  ExprId as_rule(const std::string& name, ExprId body) {
    const RuleId rule = spec_.add_rule(name);
    spec_.set_body(rule, body);
    return spec_.call(rule);
  }

  Result<ExprId> inner(const SchemaJson& json, const std::string& where, int depth) {
    if (!json.contains("content")) return Error::user(fmt::format("structure: {}.content: is missing", where));
    return part(json["content"], where + ".content", depth + 1);
  }
  Result<ExprId> literal(const SchemaJson& json, const std::string& where) {
    MILLRACE_TRY(const std::string value, text(json, "value", where));
    return spec_.bytes(value);
  }
  Result<ExprId> regex(const SchemaJson& json, const std::string& where) {
    MILLRACE_TRY(const std::string pattern, text(json, "pattern", where));
    GrammarSpec own(limits_.budget);
    MILLRACE_TRY(const ExprId body, parse_pattern(own, pattern, Spelling::utf8, limits_));
    MILLRACE_TRY(Dfa dfa, make_dfa(own, body, limits_, "regex"));
    return as_rule("a regex", spec_.dfa(std::make_shared<const Dfa>(std::move(dfa))));
  }
  Result<ExprId> grammar(const SchemaJson& json, const std::string& where) {
    MILLRACE_TRY(const std::string source, text(json, "grammar", where));
    MILLRACE_TRY_VOID(parse_gbnf(spec_, source, limits_));
    return spec_.call(spec_.root);
  }
  Result<ExprId> schema(const SchemaJson& json, const std::string& where) {
    if (!json.contains("json_schema")) return Error::user(fmt::format("structure: {}.json_schema: is missing", where));
    SchemaJson own = json["json_schema"];
    if (own.is_object() && definitions_)
      for (const auto& [key, value] : definitions_->items()) own[key] = value;
    MILLRACE_TRY_VOID(
        compile_json_schema(spec_, own.dump(-1, ' ', false, SchemaJson::error_handler_t::replace), limits_, notes_));
    return spec_.call(spec_.root);
  }
  Result<ExprId> several(const SchemaJson& json, const std::string& where, bool either, int depth) {
    MILLRACE_TRY(const SchemaJson* elements, list(json, "elements", where));
    std::vector<ExprId> parts;
    for (size_t i = 0; i < elements->size(); ++i) {
      MILLRACE_TRY(const ExprId one, part((*elements)[i], fmt::format("{}.elements[{}]", where, i), depth + 1));
      parts.push_back(one);
    }
    return either ? spec_.choice(std::move(parts)) : spec_.sequence(std::move(parts));
  }
  // `before`: the prefix of its begin that has been consumed already.
  Result<ExprId> tag(const SchemaJson& json, const std::string& where, int depth, const std::string& before) {
    MILLRACE_TRY(const std::string begin, text(json, "begin", where));
    MILLRACE_TRY(const std::string end, text(json, "end", where));
    MILLRACE_TRY(const ExprId content, inner(json, where, depth));
    return spec_.sequence({spec_.bytes(begin.substr(before.size())), content, spec_.bytes(end)});
  }
  Result<ExprId> text_until(const SchemaJson& json, const std::string& where) {
    MILLRACE_TRY(std::string end, text(json, "end", where));
    MILLRACE_TRY(const ExprId body, triggered_text(spec_, {{std::move(end), -1}}, true, false, limits_.budget));
    return as_rule("free text", body);
  }
  Result<ExprId> triggered_tags(const SchemaJson& json, const std::string& where, int depth) {
    MILLRACE_TRY(const SchemaJson* triggers, list(json, "triggers", where));
    MILLRACE_TRY(const SchemaJson* tags, list(json, "tags", where));
    std::vector<Trigger> found;
    std::vector<bool> used(tags->size(), false);
    for (size_t i = 0; i < triggers->size(); ++i) {
      const std::string name = fmt::format("{}.triggers[{}]", where, i);
      if (!(*triggers)[i].is_string()) return Error::user(fmt::format("structure: {}: must be a string", name));
      const auto trigger = (*triggers)[i].get<std::string>();
      std::vector<ExprId> ways;
      for (size_t t = 0; t < tags->size(); ++t) {
        const SchemaJson& one = (*tags)[t];
        const std::string place = fmt::format("{}.tags[{}]", where, t);
        if (!one.is_object()) return Error::user(fmt::format("structure: {}: must be an object", place));
        MILLRACE_TRY(const std::string begin, text(one, "begin", place));
        if (!begin.starts_with(trigger)) continue;
        used[t] = true;
        MILLRACE_TRY(const ExprId rest, tag(one, place, depth + 1, trigger));
        ways.push_back(rest);
      }
      if (ways.empty()) return Error::user(fmt::format("structure: {}: no tag begins with this trigger", name));
      const RuleId rule = spec_.add_rule("a tag");
      spec_.set_body(rule, spec_.choice(std::move(ways)));
      found.push_back({trigger, rule});
    }
    for (size_t t = 0; t < used.size(); ++t)
      if (!used[t])
        return Error::user(fmt::format("structure: {}.tags[{}].begin: does not begin with a trigger", where, t));
    MILLRACE_TRY(const ExprId body, triggered_text(spec_, found, flag(json, "at_least_one"),
                                                   !flag(json, "stop_after_first"), limits_.budget));
    return as_rule("free text with tags", body);
  }
  Result<ExprId> tags_with_separator(const SchemaJson& json, const std::string& where, int depth) {
    MILLRACE_TRY(const SchemaJson* tags, list(json, "tags", where));
    MILLRACE_TRY(const std::string separator, text(json, "separator", where));
    std::vector<ExprId> ways;
    for (size_t t = 0; t < tags->size(); ++t) {
      MILLRACE_TRY(const ExprId one, tag((*tags)[t], fmt::format("{}.tags[{}]", where, t), depth + 1, ""));
      ways.push_back(one);
    }
    const ExprId one = as_rule("a tag", spec_.choice(std::move(ways)));
    ExprId all = one;
    if (!flag(json, "stop_after_first"))
      all = spec_.sequence({one, spec_.repeat(spec_.sequence({spec_.bytes(separator), one}), 0, kNoLimit)});
    return flag(json, "at_least_one") ? all : spec_.optional(all);
  }

  Result<ExprId> with_definitions(const SchemaJson& json, const std::string& where, int depth, bool tagged) {
    const SchemaJson* outer = definitions_;
    if (json.contains("definitions") && json["definitions"].is_object()) definitions_ = &json["definitions"];
    Result<ExprId> out = tagged ? fields(json, where, depth) : listed(json, where, depth);
    definitions_ = outer;
    return out;
  }

  Result<ExprId> listed(const SchemaJson& json, const std::string& where, int depth) {
    MILLRACE_TRY(const std::string separator, text(json, "separator", where));
    if (!json.contains("items") || !json["items"].is_array())
      return Error::user(fmt::format("structure: {}.items: must be an array", where));
    std::vector<KeyedMembers::Member> items;
    for (size_t i = 0; i < json["items"].size(); ++i) {
      const SchemaJson& one = json["items"][i];
      const std::string place = fmt::format("{}.items[{}]", where, i);
      if (!one.is_object()) return Error::user(fmt::format("structure: {}: must be an object", place));
      MILLRACE_TRY(ExprId content, inner(one, place, depth));
      MILLRACE_TRY(std::string key, one.contains("key") ? text(one, "key", place) : Result<std::string>(std::string()));
      content = as_rule("an item", content);
      if (flag(json, "repeated")) content = spec_.list(spec_.bytes(separator), {content}, "*", true);
      items.push_back({std::move(key), content, flag(one, "required")});
    }
    std::vector<ExprId> parts;
    for (const char* side : {"open", "", "close"}) {
      if (*side == 0 && !items.empty()) parts.push_back(listed_items(separator, items));
      if (*side == 0 || !json.contains(side)) continue;
      MILLRACE_TRY(const std::string mark, text(json, side, where));
      parts.push_back(spec_.bytes(mark));
    }
    return spec_.sequence(std::move(parts));
  }
  // A tree of the keys if each one ends where no other goes on: its automaton is linear in the number of items.
  ExprId listed_items(const std::string& separator, std::vector<KeyedMembers::Member>& items) {
    std::vector<std::string> keys;
    for (const KeyedMembers::Member& item : items) keys.push_back(item.key);
    std::ranges::sort(keys);
    const auto prefix = [](const std::string& key, const std::string& next) { return next.starts_with(key); };
    if (std::ranges::adjacent_find(keys, prefix) == keys.end() && !keys[0].empty())
      return spec_.keyed({spec_.bytes(separator), spec_.bytes(""), std::move(items), -1, false});
    std::vector<ExprId> members;
    std::string counts;
    for (const KeyedMembers::Member& item : items) {
      members.push_back(spec_.sequence({spec_.bytes(item.key), item.content}));
      counts += item.required ? '1' : '?';
    }
    return spec_.list(spec_.bytes(separator), members, std::move(counts));
  }

  Result<ExprId> fields(const SchemaJson& json, const std::string& where, int depth) {
    MILLRACE_TRY(FieldList list, read_field_list(json, where));
    for (size_t i = 0; i < list.fields.size(); ++i) {
      const SchemaJson& one = json["fields"][i];
      const std::string place = fmt::format("{}.fields[{}]", where, i);
      if (++elements_ > kMaxElements)
        return Error::unsupported(fmt::format("structure: {}: more than {} parts", place, kMaxElements));
      MILLRACE_TRY_VOID(take_weakened(one));
      for (const auto& [key, into] : {std::pair{"head", &list.fields[i].head}, {"content", &list.fields[i].content}}) {
        if (!one.contains(key)) continue;
        MILLRACE_TRY(const ExprId compiled, part(one[key], place + "." + key, depth + 1));
        *into = compiled;
      }
    }
    return compile_fields(spec_, list, limits_.budget);
  }

  GrammarSpec& spec_;
  const GrammarLimits& limits_;
  GrammarNotes& notes_;
  size_t elements_ = 0;
  const SchemaJson* definitions_ = nullptr;  // of the innermost part that has some
  std::map<std::string, RuleId> shared_;     // by the part's JSON text
};

// Legacy form: {"structures": [{begin, schema, end}], "triggers": [...]}.
SchemaJson from_old_form(const SchemaJson& json) {
  SchemaJson tags = SchemaJson::array();
  for (const SchemaJson& one : json["structures"]) {
    SchemaJson tag = {{"begin", ""}, {"content", {{"type", "json_schema"}, {"json_schema", true}}}, {"end", ""}};
    if (one.is_object()) {
      for (const char* key : {"begin", "end"})
        if (one.contains(key)) tag[key] = one[key];
      if (one.contains("schema")) tag["content"]["json_schema"] = one["schema"];
    }
    tags.push_back(std::move(tag));
  }
  return {{"type", "triggered_tags"},
          {"triggers", json.contains("triggers") ? json["triggers"] : SchemaJson::array()},
          {"tags", std::move(tags)}};
}

}  // namespace

Result<void> compile_structure(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits,
                               GrammarNotes& notes) {
  bool deep = false;  // serializing a part recurses
  const auto within = [&](int depth, SchemaJson::parse_event_t, SchemaJson&) {
    deep |= depth > limits.depth + 3 * kMaxStructureDepth;
    return !deep;
  };
  SchemaJson json = SchemaJson::parse(text, within, false);
  if (deep) return Error::unsupported(fmt::format("structure: nested more than {} levels deep", limits.depth));
  if (!json.is_object()) return Error::user("structure: must be a JSON object");
  if (json.contains("structures") && json["structures"].is_array()) json = from_old_form(json);
  if (json.contains("format") && json.value("type", SchemaJson()) == "structural_tag")
    json = SchemaJson(json["format"]);
  Structure structure(spec, limits, notes);
  MILLRACE_TRY(const ExprId body, structure.part(json, "the structure"));
  spec.root = spec.add_rule("the structure");
  spec.set_body(spec.root, body);
  return {};
}

}  // namespace millrace
