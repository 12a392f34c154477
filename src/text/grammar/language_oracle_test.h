// A plain definition of the language of a grammar's forms: for every string up to a maximum length, the numbers of
// ticks with which the string matches. Forms can be added to a GrammarSpec, and printed as GBNF and as a regex.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "text/grammar/dfa.h"

namespace millrace::testing {

inline constexpr std::string_view kLetters = "abc";
inline constexpr size_t kLongestString = 6;

// Returns all strings of kLetters, shorter strings first.
inline const std::vector<std::string>& all_strings() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out{""};
    for (size_t i = 0; out[i].size() < kLongestString; ++i)
      for (const char c : kLetters) out.push_back(out[i] + c);
    return out;
  }();
  return all;
}

// [string]: bit t is set if the string matches with t ticks.
using Language = std::vector<uint32_t>;

struct Form {
  enum class Kind { text, letters, sequence, choice, repeat, list, keyed, call, tick, automaton };
  Kind kind = Kind::text;
  std::string text;         // text; letters: its members; list, keyed: how often each part occurs
  std::vector<Form> parts;  // list: the separator, then members; keyed: separator, opening, contents, others
  std::vector<std::string> keys;
  uint32_t min = 0, max = kNoLimit;  // repeat; a call's bounds on ticks; list, keyed: min 1 means not empty
  int rule = -1;
};

class LanguageOracle {
 public:
  explicit LanguageOracle(const std::vector<Form>& rules) : rules_(rules) {
    known_.assign(rules.size(), none());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < rules.size(); ++r) {
        Language now = of(rules[r]);
        changed |= now != known_[r];
        known_[r] = std::move(now);
      }
    }
  }
  const Language& rule(size_t r) const { return known_[r]; }

  Language of(const Form& form) const {
    const auto part = [&](size_t i) { return of(form.parts[i]); };
    switch (form.kind) {
      case Form::Kind::text: return only(form.text);
      case Form::Kind::letters: {
        Language out = none();
        for (const char c : form.text) out = both(out, only(std::string(1, c)));
        return out;
      }
      case Form::Kind::tick: {
        Language out = none();
        out[0] = 2;
        return out;
      }
      case Form::Kind::sequence: {
        Language out = only("");
        for (size_t i = 0; i < form.parts.size(); ++i) out = joined(out, part(i));
        return out;
      }
      case Form::Kind::choice: {
        Language out = none();
        for (size_t i = 0; i < form.parts.size(); ++i) out = both(out, part(i));
        return out;
      }
      case Form::Kind::repeat: return repeated(part(0), form.min, form.max);
      case Form::Kind::automaton: return part(0);
      case Form::Kind::list: return listed(form, 1, part(0), {});
      case Form::Kind::keyed: return listed(form, 2, part(0), part(1));
      case Form::Kind::call: return called(known_[static_cast<size_t>(form.rule)], form.min, form.max);
    }
    return none();
  }

 private:
  static Language none() { return Language(all_strings().size(), 0); }
  static size_t place(const std::string& text) {
    static const std::map<std::string, size_t> places = [] {
      std::map<std::string, size_t> out;
      for (size_t i = 0; i < all_strings().size(); ++i) out[all_strings()[i]] = i;
      return out;
    }();
    const auto found = places.find(text);
    return found == places.end() ? SIZE_MAX : found->second;
  }
  static Language only(const std::string& text) {
    Language out = none();
    if (const size_t at = place(text); at != SIZE_MAX) out[at] = 1;
    return out;
  }
  static Language both(Language a, const Language& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] |= b[i];
    return a;
  }
  static Language joined(const Language& a, const Language& b) {
    Language out = none();
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == 0) continue;
      for (size_t j = 0; j < b.size() && all_strings()[i].size() + all_strings()[j].size() <= kLongestString; ++j) {
        if (b[j] == 0) continue;
        uint32_t& to = out[place(all_strings()[i] + all_strings()[j])];
        for (uint32_t t = 0; t < 16; ++t)
          if (b[j] >> t & 1) to |= a[i] << t;
      }
    }
    return out;
  }
  // Returns the language of `min` to `max` repetitions. Only kLongestString + 6 repetitions after `min` are computed,
  // because further repetitions of a nonempty part add no string.
  static Language repeated(const Language& one, uint32_t min, uint32_t max) {
    Language out = none(), power = only("");
    const uint32_t last = std::min<uint64_t>(max, uint64_t{min} + kLongestString + 6);
    for (uint32_t n = 0; n <= last; ++n) {
      if (n >= min) out = both(out, power);
      power = joined(power, one);
    }
    return out;
  }
  // Returns the language of a list: each member once ('1'), at most once ('?') or any number of times ('*'), separated
  // by `separator`.
  Language listed(const Form& form, size_t first, const Language& separator, const Language& opening) const {
    Language empty = only(""), some = none();
    for (size_t i = first; i < form.parts.size(); ++i) {
      const bool named = i - first < form.keys.size();
      const char count = i - first < form.text.size() ? form.text[i - first] : '*';
      Language member = of(form.parts[i]);
      if (named) member = joined(joined(opening, only(form.keys[i - first])), member);
      const Language more = joined(separator, member);
      Language with = both(joined(empty, member), joined(some, more));
      if (count == '*') with = joined(with, repeated(more, 0, kNoLimit));
      some = count == '1' ? with : both(some, with);
      if (count == '1') empty = none();
    }
    return form.min > 0 ? some : both(some, empty);
  }
  // The call counts the ticks; its callers do not see them.
  static Language called(const Language& rule, uint32_t need, uint32_t room) {
    Language out = none();
    for (size_t i = 0; i < rule.size(); ++i)
      for (uint32_t t = need; t < 32 && t <= room; ++t)
        if (rule[i] >> t & 1) out[i] = 1;
    return out;
  }

  const std::vector<Form>& rules_;
  std::vector<Language> known_;
};

inline ExprId to_expr(GrammarSpec& spec, const Form& form) {
  std::vector<ExprId> parts;
  if (form.kind != Form::Kind::automaton)
    for (const Form& part : form.parts) parts.push_back(to_expr(spec, part));
  switch (form.kind) {
    case Form::Kind::text: return spec.bytes(form.text);
    case Form::Kind::letters: return spec.byte_set(form.text);
    case Form::Kind::tick: return spec.tick();
    case Form::Kind::sequence: return spec.sequence(parts);
    case Form::Kind::choice: return spec.choice(parts);
    case Form::Kind::repeat: return spec.repeat(parts[0], form.min, form.max);
    case Form::Kind::call: return spec.call(form.rule, form.min, form.max);
    case Form::Kind::list: return spec.list(parts[0], {parts.begin() + 1, parts.end()}, form.text, form.min > 0);
    case Form::Kind::automaton: {
      GrammarSpec own;
      return spec.dfa(std::make_shared<const Dfa>(make_dfa(own, to_expr(own, form.parts[0]), {}, "part").value()));
    }
    case Form::Kind::keyed: {
      KeyedMembers list{parts[0], parts[1], {}, -1, form.min > 0};
      for (size_t i = 0; i < form.keys.size(); ++i)
        list.members.push_back({form.keys[i], parts[i + 2], form.text[i] == '1'});
      if (parts.size() > form.keys.size() + 2) list.others = parts.back();
      return spec.keyed(std::move(list));
    }
  }
  return spec.never();
}

// Prints a form as GBNF, or as an ECMA-262 regex if `regex`.
inline std::string written(const Form& form, bool regex) {
  std::string out;
  switch (form.kind) {
    case Form::Kind::text:
      if (!regex) return "\"" + form.text + "\"";
      return form.text.size() == 1 ? form.text : "(?:" + form.text + ")";
    case Form::Kind::letters: return "[" + form.text + "]";
    case Form::Kind::call: return "r" + std::to_string(form.rule);
    case Form::Kind::repeat: {
      const std::string inner = written(form.parts[0], regex);
      const bool atom = form.parts[0].kind == Form::Kind::letters || inner.front() == '(';
      out = atom && !(regex && form.parts[0].kind == Form::Kind::repeat) ? inner : "(" + inner + ")";
      if (form.min == 0 && form.max == kNoLimit) return out + "*";
      if (form.min == 1 && form.max == kNoLimit) return out + "+";
      if (form.min == 0 && form.max == 1) return out + "?";
      out += "{" + std::to_string(form.min);
      if (form.max == kNoLimit)
        out += ",";
      else if (form.max != form.min)
        out += "," + std::to_string(form.max);
      return out + "}";
    }
    default: break;
  }
  for (const Form& part : form.parts) {
    if (!out.empty()) out += form.kind == Form::Kind::choice ? "|" : regex ? "" : " ";
    out += written(part, regex);
  }
  return "(" + out + ")";
}

}  // namespace millrace::testing
