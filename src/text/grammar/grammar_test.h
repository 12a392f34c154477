// Functions of the grammar tests: a small vocabulary, and matching of texts with constraints and of JSON values with
// schemas.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "text/grammar/constraint.h"
#include "text/grammar/json_rules.h"

namespace millrace::testing {

// Returns every byte, and pieces that cross grammar boundaries: quotes, brackets, digits, spaces, parts of characters.
inline std::vector<std::string> small_vocabulary() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* piece :
       {"\"",    "\":",     "\": \"",  "\",",       "\", \"", "\"}",      "{\"",      "[\"",
        "},",    "}}",      "}]",      "],",        "[[",     "{}",       "[]",       " \"",
        "\n",    "\n  ",    "  ",      "true",      "false",  "null",     "tr",       "ue",
        "12",    "123",     "0.5",     "-1",        "1e",     "e+",       "10",       "\\n",
        "\\u00", "\\ud83d", "\\ude00", "\xC3\xA9",  "\xC3",   "\xF0\x9F", "\x98\x80", "\xF0\x9F\x98\x80",
        "name",  "na",      "me\":",   "value",     "ab",     "abc",      "hello",    " world",
        "the",   "a\",\"b", "\":\"",   "\":1,\"",   "1,2",    "1]",       "1}",       "type",
        "items", "x",       "yes",     "no",        "maybe",  "- ",       "(",        ")",
        "+",     "=",       "\",\n",   "{\"a\": 1}"})
    pieces.push_back(piece);
  pieces.push_back("");  // the end of generation has no text
  return pieces;
}

inline Constraint make_constraint(Constraint::Kind kind, std::string text, std::string trigger = "") {
  Constraint constraint;
  constraint.kind = kind;
  constraint.text = std::move(text);
  constraint.trigger = std::move(trigger);
  return constraint;
}
inline Constraint schema_of(std::string text) {
  return make_constraint(Constraint::Kind::json_schema, std::move(text));
}
inline Constraint regex_of(std::string text) { return make_constraint(Constraint::Kind::regex, std::move(text)); }
inline Constraint gbnf_of(std::string text) { return make_constraint(Constraint::Kind::grammar, std::move(text)); }

// Matches whole texts with a grammar.
class TextMatcher {
 public:
  explicit TextMatcher(const Constraint& constraint) {
    // Instrumented code is many times slower than release builds.
#ifdef MILLRACE_SANITIZED
    CompileBudget budget({.seconds = 30});
#else
    CompileBudget budget;
#endif
    GrammarLimits limits;
    limits.budget = &budget;
    auto grammar = compile_constraint(constraint, limits);
    if (!grammar.ok()) {
      error = grammar.error();
      return;
    }
    notes = grammar->notes;
    table_ = std::make_unique<ParseTable>(std::make_shared<const Grammar>(std::move(grammar).value()));
  }
  bool ok() const { return table_ != nullptr; }
  SetId feed(SetId set, std::string_view text) {
    for (size_t i = 0; i < text.size() && set != kDead; ++i) set = table_->step(set, static_cast<uint8_t>(text[i]));
    return set;
  }
  bool accepts(std::string_view text) {
    const SetId set = feed(table_->begin(), text);
    return set != kDead && table_->complete(set);
  }
  bool begins(std::string_view text) { return feed(table_->begin(), text) != kDead; }

  // Returns true if some text of the value is accepted. Tries different orders of its keys.
  bool accepts_value(const SchemaJson& value) {
    steps_ = 0;
    const SetId set = feed_value(table_->begin(), value);
    return set != kDead && table_->complete(set);
  }

  Error error;
  GrammarNotes notes;

 private:
  SetId feed_value(SetId set, const SchemaJson& value) {
    if (set == kDead || ++steps_ > 50'000) return kDead;
    if (value.is_object()) {
      std::vector<std::string> keys;
      for (auto it = value.begin(); it != value.end(); ++it) keys.push_back(it.key());
      return feed_members(feed(set, "{"), value, keys, true);
    }
    if (value.is_array()) {
      set = feed(set, "[");
      for (size_t i = 0; i < value.size(); ++i) set = feed_value(i > 0 ? feed(set, ",") : set, value[i]);
      return feed(set, "]");
    }
    const SetId to = feed(set, value.dump());
    if (to != kDead || !value.is_number_float() || std::fabs(value.get<double>()) > 1e15) return to;
    const double number = value.get<double>();  // 1.0 for 1
    return number == std::floor(number) ? feed(set, std::to_string(static_cast<int64_t>(number))) : kDead;
  }
  SetId feed_members(SetId set, const SchemaJson& value, std::vector<std::string>& keys, bool first) {
    if (set == kDead || ++steps_ > 50'000) return kDead;
    if (keys.empty()) return feed(set, "}");
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::string key = keys[i];
      const SetId after =
          feed_value(feed(first ? set : feed(set, ","), "\"" + spell_json(key) + "\":"), *value.find(key));
      if (after == kDead) continue;
      keys.erase(keys.begin() + static_cast<ptrdiff_t>(i));
      const SetId end = feed_members(after, value, keys, false);
      keys.insert(keys.begin() + static_cast<ptrdiff_t>(i), key);
      if (end != kDead) return end;
    }
    return kDead;
  }

  std::unique_ptr<ParseTable> table_;
  int64_t steps_ = 0;
};

}  // namespace millrace::testing
