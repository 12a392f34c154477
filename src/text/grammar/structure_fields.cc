#include "text/grammar/structure_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "text/grammar/structure.h"

namespace millrace {
namespace {

// With more fields than this that may follow, free text ends at the common beginning of their tags, which keeps the
// automata small.
constexpr size_t kMaxTagsInTriggers = 16;

class FieldRules {
 public:
  FieldRules(GrammarSpec& spec, const FieldList& list, CompileBudget* budget)
      : spec_(spec), list_(list), budget_(budget), count_(list.fields.size()) {}

  Result<ExprId> compile() {
    for (size_t i = 0; i < count_; ++i) fields_.push_back(spec_.add_rule("a field"));
    for (size_t i = 0; i <= count_; ++i) follow_.push_back(spec_.add_rule("the fields that follow"));
    set_follow();
    if (count_ > kMaxTagsInTriggers) set_tag_ends();
    for (size_t i = 0; i < count_; ++i) {
      MILLRACE_TRY_VOID(spec_.check());
      const FieldList::Field& field = list_.fields[i];
      std::vector<ExprId> parts;
      if (field.head) parts.push_back(*field.head);
      if (field.content) {
        std::vector<ExprId> between;
        for (const std::string& text : list_.between) between.push_back(spec_.bytes(text));
        parts.insert(parts.end(), {*field.content, spec_.bytes(field.tail + list_.close),
                                   spec_.choice(std::move(between)), spec_.call(follow_[i + 1])});
      } else {
        MILLRACE_TRY(const ExprId text, triggered_text(spec_, triggers(i), true, false, budget_));
        parts.push_back(text);
      }
      spec_.set_body(fields_[i], spec_.sequence(std::move(parts)));
    }
    return spec_.call(follow_[0]);
  }

 private:
  // follow_[i]: field i or a later one, or the end, as required fields permit.
  void set_follow() {
    spec_.set_body(follow_[count_], spec_.bytes(list_.end));
    for (size_t i = count_; i-- > 0;) set_choice(follow_[i], i, list_.fields[i].open, &follow_);
  }
  void set_choice(RuleId rule, size_t i, const std::string& open, const std::vector<RuleId>* later) {
    std::vector<ExprId> ways = {spec_.sequence({spec_.bytes(open), spec_.call(fields_[i])})};
    if (!list_.fields[i].required && i + 1 < later->size()) ways.push_back(spec_.call((*later)[i + 1]));
    spec_.set_body(rule, spec_.choice(std::move(ways)));
  }
  // The same without the end and without the common beginning of the tags.
  void set_tag_ends() {
    prefix_ = list_.fields[0].open;
    for (const FieldList::Field& field : list_.fields)
      prefix_.resize(static_cast<size_t>(std::ranges::mismatch(prefix_, field.open).in1 - prefix_.begin()));
    for (size_t i = 0; i < count_; ++i) tag_ends_.push_back(spec_.add_rule("the rest of a tag"));
    for (size_t i = count_; i-- > 0;)
      set_choice(tag_ends_[i], i, list_.fields[i].open.substr(prefix_.size()), &tag_ends_);
  }

  std::vector<Trigger> triggers(size_t i) const {
    size_t last = i + 1;  // the last field that may follow; count_: the end may follow too
    while (last < count_ && !list_.fields[last].required) ++last;
    const bool may_end = last == count_;
    std::vector<Trigger> out;
    for (const std::string& between : list_.between) {
      const std::string before = list_.close + between;
      if (may_end) out.push_back({before + list_.end, -1});
      if (tag_ends_.empty()) {
        for (size_t j = i + 1; j < std::min(last + 1, count_); ++j)
          out.push_back({before + list_.fields[j].open, fields_[j]});
      } else if (i + 1 < count_) {
        out.push_back({before + prefix_, tag_ends_[i + 1]});
      }
    }
    return out;
  }

  GrammarSpec& spec_;
  const FieldList& list_;
  CompileBudget* budget_;
  size_t count_;
  std::vector<RuleId> fields_;  // [field]: what follows its tag, up to the end of the list
  std::vector<RuleId> follow_;  // [field + 1]
  std::string prefix_;
  std::vector<RuleId> tag_ends_;  // [field]; empty: tags are in the triggers
};

}  // namespace

Result<FieldList> read_field_list(const nlohmann::ordered_json& json, const std::string& where) {
  FieldList out;
  const auto text = [&](const nlohmann::ordered_json& from, const char* key, const std::string& place,
                        std::string& into) -> Result<void> {
    if (!from.is_object() || !from.contains(key) || !from[key].is_string())
      return Error::user(fmt::format("structure: {}.{}: must be a string", place, key));
    into = from[key].get<std::string>();
    return {};
  };
  MILLRACE_TRY_VOID(text(json, "close", where, out.close));
  MILLRACE_TRY_VOID(text(json, "end", where, out.end));
  if (out.close.empty()) return Error::user(fmt::format("structure: {}.close: is empty", where));
  for (const char* key : {"between", "fields"})
    if (!json.contains(key) || !json[key].is_array())
      return Error::user(fmt::format("structure: {}.{}: must be an array", where, key));
  for (const auto& between : json["between"]) {
    if (!between.is_string()) return Error::user(fmt::format("structure: {}.between: must have strings", where));
    out.between.push_back(between.get<std::string>());
  }
  if (out.between.empty()) out.between.emplace_back();
  for (size_t i = 0; i < json["fields"].size(); ++i) {
    const auto& one = json["fields"][i];
    const std::string place = fmt::format("{}.fields[{}]", where, i);
    FieldList::Field field;
    MILLRACE_TRY_VOID(text(one, "open", place, field.open));
    if (field.open.empty()) return Error::user(fmt::format("structure: {}.open: is empty", place));
    if (one.contains("tail")) MILLRACE_TRY_VOID(text(one, "tail", place, field.tail));
    field.required = one.contains("required") && one["required"] == true;
    out.fields.push_back(std::move(field));
  }
  return out;
}

Result<ExprId> compile_fields(GrammarSpec& spec, const FieldList& list, CompileBudget* budget) {
  return FieldRules(spec, list, budget).compile();
}

}  // namespace millrace
