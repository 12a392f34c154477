#include "text/grammar/schema_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>

#include "text/grammar/json_rules.h"
#include "text/grammar/pattern.h"

namespace millrace {
namespace {

struct Format {
  std::string_view name, pattern;
};

#define MILLRACE_DATE                                                                                          \
  "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))|" \
  "((\\d\\d(0[48]|[2468][048]|[13579][26]))|(([02468][048]|[13579][26])00))-02-29)"
#define MILLRACE_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define MILLRACE_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define MILLRACE_BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define MILLRACE_V4 MILLRACE_BYTE "(\\." MILLRACE_BYTE "){3}"
#define MILLRACE_H "[0-9A-Fa-f]{1,4}"
#define MILLRACE_V6                                                                                              \
  "((" MILLRACE_H ":){7}" MILLRACE_H "|(" MILLRACE_H ":){6}" MILLRACE_V4 "|::(" MILLRACE_H ":){0,5}" MILLRACE_V4 \
  "|(" MILLRACE_H ":){1,7}:|(" MILLRACE_H ":){1,6}:" MILLRACE_H "|(" MILLRACE_H ":){1,5}(:" MILLRACE_H           \
  "){1,2}"                                                                                                       \
  "|(" MILLRACE_H ":){1,4}(:" MILLRACE_H "){1,3}|(" MILLRACE_H ":){1,3}(:" MILLRACE_H                            \
  "){1,4}"                                                                                                       \
  "|(" MILLRACE_H ":){1,2}(:" MILLRACE_H "){1,5}|" MILLRACE_H ":(:" MILLRACE_H "){1,6}|:((:" MILLRACE_H "){1,7}|:))"
#define MILLRACE_PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define MILLRACE_HOST "([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
#define MILLRACE_USER "(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
#define MILLRACE_AUTHORITY "//" MILLRACE_USER "(\\[" MILLRACE_V6 "\\]|" MILLRACE_HOST "*)(:\\d*)?"
#define MILLRACE_QUERY "(\\?(" MILLRACE_PCHAR "|[/?])*)?(#(" MILLRACE_PCHAR "|[/?])*)?"
#define MILLRACE_URI                                                                                               \
  "[A-Za-z][A-Za-z0-9+.-]*:(" MILLRACE_AUTHORITY "(/" MILLRACE_PCHAR "*)*|/?(" MILLRACE_PCHAR "+(/" MILLRACE_PCHAR \
  "*)*)?)" MILLRACE_QUERY

// Matching texts are valid; some rare valid texts (comments in addresses, leap seconds) are not accepted.
constexpr Format kFormats[] = {
    {"date", "^" MILLRACE_DATE "$"},
    {"time", "^" MILLRACE_TIME "$"},
    {"date-time", "^" MILLRACE_DATE "[Tt]" MILLRACE_TIME "$"},
    {"duration",
     "^P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))?|"
     "T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))$"},
    {"email", "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" MILLRACE_LABEL
              "(\\." MILLRACE_LABEL ")*$"},
    {"hostname", "^" MILLRACE_LABEL "(\\." MILLRACE_LABEL ")*$"},
    {"ipv4", "^" MILLRACE_V4 "$"},
    {"ipv6", "^" MILLRACE_V6 "$"},
    {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
    {"uri", "^" MILLRACE_URI "$"},
    {"uri-reference", "^(" MILLRACE_URI "|(" MILLRACE_AUTHORITY "(/" MILLRACE_PCHAR "*)*|/(" MILLRACE_PCHAR
                      "+(/" MILLRACE_PCHAR "*)*)?|" MILLRACE_HOST "*(/" MILLRACE_PCHAR "*)*)" MILLRACE_QUERY ")$"},
    {"json-pointer", "^(/([^~/]|~[01])*)*$"},
    {"relative-json-pointer", "^(0|[1-9]\\d*)(#|(/([^~/]|~[01])*)*)$"},
};

// The fewest and most characters of an automaton whose ticks count them; kNoLimit if unbounded.
std::pair<uint32_t, uint32_t> length_range(const Dfa& dfa) {
  const auto n = static_cast<size_t>(dfa.size());
  std::vector<uint32_t> least(n, kNoLimit);
  std::deque<size_t> queue{0};
  least[0] = 0;
  const auto each_next = [&](size_t s, auto visit) {
    int32_t before = -1;
    for (int32_t c = 0; c < dfa.classes; ++c) {
      const int32_t to = dfa.next[s * static_cast<size_t>(dfa.classes) + static_cast<size_t>(c)];
      if (to >= 0 && to != before) visit(static_cast<size_t>(to));
      before = to;
    }
  };
  while (!queue.empty()) {
    const size_t s = queue.front();
    queue.pop_front();
    each_next(s, [&](size_t to) {
      const uint32_t length = least[s] + dfa.ticks[to];
      if (length >= least[to]) return;
      least[to] = length;
      dfa.ticks[to] ? queue.push_back(to) : queue.push_front(to);
    });
  }
  uint32_t shortest = kNoLimit;
  for (size_t s = 0; s < n; ++s)
    if (dfa.accepting[s]) shortest = std::min(shortest, least[s]);
  // The longest path, in postorder; a cycle makes it unbounded, since all states reach the end.
  std::vector<uint8_t> state(n, 0);
  std::vector<uint32_t> longest(n, 0);
  std::vector<std::pair<size_t, int32_t>> path{{0, 0}};
  state[0] = 1;
  while (!path.empty()) {
    auto& [s, c] = path.back();
    if (c == dfa.classes) {
      each_next(s, [&, from = s](size_t to) { longest[from] = std::max(longest[from], longest[to] + dfa.ticks[to]); });
      state[s] = 2;
      path.pop_back();
      continue;
    }
    const int32_t to = dfa.next[s * static_cast<size_t>(dfa.classes) + static_cast<size_t>(c++)];
    if (to < 0) continue;
    if (state[static_cast<size_t>(to)] == 1) return {shortest, kNoLimit};
    if (state[static_cast<size_t>(to)] == 0)
      state[static_cast<size_t>(to)] = 1, path.emplace_back(static_cast<size_t>(to), 0);
  }
  return {shortest, longest[0]};
}

// Any characters in their canonical spelling; with `ticking` they tick at their first byte.
Result<Dfa> universe(bool ticking, const GrammarLimits& limits) {
  GrammarSpec spec;
  const ExprId one = spec.chars(any_char(), Spelling::json);
  MILLRACE_TRY(Dfa dfa, make_dfa(spec, spec.repeat(one, 0, kNoLimit), limits, "string"));
  if (!ticking) return dfa;
  // States inside a character are not accepting, so an edge from an accepting state begins a character and must tick.
  // The end of a one-byte character is entered by such an edge, the end of a longer one is not: each state is therefore
  // duplicated.
  const int32_t n = dfa.size();
  Dfa out = dfa;  // the second half stands for "entered from inside a character"
  const auto classes = static_cast<size_t>(dfa.classes);
  for (int32_t s = 0; s < n; ++s) {
    out.accepting.push_back(dfa.accepting[static_cast<size_t>(s)]);
    out.ticks.push_back(0);
    out.calls.emplace_back();
    for (size_t c = 0; c < classes; ++c) out.next.push_back(dfa.next[static_cast<size_t>(s) * classes + c]);
  }
  // First half [0, n): entered by the first byte of a character, ticks. Second half: entered otherwise.
  for (int32_t s = 0; s < 2 * n; ++s) {
    const bool between = dfa.accepting[static_cast<size_t>(s % n)];
    for (size_t c = 0; c < classes; ++c) {
      int32_t& to = out.next[static_cast<size_t>(s) * classes + c];
      if (to >= 0 && !between) to = to % n + n;
    }
  }
  for (int32_t s = 0; s < n; ++s) out.ticks[static_cast<size_t>(s)] = 1;
  out.ticks[0] = 0;  // nothing leads back to the first state
  return out;
}

Result<Dfa> lengths(uint32_t min, uint32_t max, const GrammarLimits& limits, std::string_view what) {
  GrammarSpec spec;
  return make_dfa(spec, spec.repeat(spec.chars(any_char(), Spelling::json), min, max), limits, what);
}

}  // namespace

std::string_view format_pattern(std::string_view format) {
  for (const Format& known : kFormats)
    if (known.name == format) return known.pattern;
  return {};
}

bool standard_format(std::string_view format) {
  static constexpr std::string_view kOthers[] = {"idn-email",     "idn-hostname", "iri",
                                                 "iri-reference", "uri-template", "regex"};
  return !format_pattern(format).empty() || std::ranges::find(kOthers, format) != std::end(kOthers);
}

Result<Dfa> schema_pattern_dfa(std::string_view pattern, const GrammarLimits& limits) {
  struct LookAhead {
    std::string inner;
    bool wanted = false;
  };
  std::vector<LookAhead> ahead;
  std::string_view rest = pattern;
  if (rest.starts_with("^")) rest.remove_prefix(1);
  while (rest.size() < pattern.size() && (rest.starts_with("(?=") || rest.starts_with("(?!"))) {
    size_t depth = 0, at = 0;
    bool in_class = false;
    for (; at < rest.size(); ++at) {
      const char c = rest[at];
      if (c == '\\')
        ++at;
      else if (in_class)
        in_class = c != ']';
      else if (c == '[')
        in_class = true;
      else if (c == '(')
        ++depth;
      else if (c == ')' && --depth == 0)
        break;
    }
    if (at >= rest.size()) break;
    ahead.push_back({std::string(rest.substr(3, at - 3)), rest[2] == '='});
    rest.remove_prefix(at + 1);
  }
  // With a top-level alternative, or a repetition after it, a look-ahead does not apply to the whole text.
  size_t depth = 0;
  bool in_class = false, whole = rest.empty() || std::string_view("*+?{").find(rest.front()) == std::string_view::npos;
  for (size_t at = 0; at < rest.size() && whole; ++at) {
    const char c = rest[at];
    if (c == '\\')
      ++at;
    else if (in_class)
      in_class = c != ']';
    else if (c == '[')
      in_class = true;
    else if (c == '(')
      ++depth;
    else if (c == ')' && depth > 0)
      --depth;
    else if (c == '|' && depth == 0)
      whole = false;
  }
  if (ahead.empty() || !whole) return search_dfa(pattern, Spelling::json, limits);
  MILLRACE_TRY(Dfa dfa, search_dfa("^" + std::string(rest), Spelling::json, limits));
  for (const LookAhead& one : ahead) {
    MILLRACE_TRY(const Dfa seen, search_dfa("^(?:" + one.inner + ")", Spelling::json, limits));
    MILLRACE_TRY(dfa, combine(dfa, seen, one.wanted ? DfaProduct::both : DfaProduct::first_only, limits, "pattern"));
  }
  return dfa;
}

Result<Dfa> string_dfa(const StringBounds& bounds, const GrammarLimits& limits, std::string_view what) {
  MILLRACE_TRY(Dfa dfa, universe(true, limits));
  const auto narrow = [&](Result<Dfa> other, DfaProduct product) -> Result<void> {
    if (!other.ok()) return Error{other.error().kind, fmt::format("{}: {}", what, other.error().message)};
    MILLRACE_TRY(dfa, combine(dfa, *other, product, limits, what));
    return {};
  };
  for (const std::string& pattern : bounds.patterns)
    MILLRACE_TRY_VOID(narrow(schema_pattern_dfa(pattern, limits), DfaProduct::both));
  for (const std::string& format : bounds.formats) {
    const std::string_view pattern = format_pattern(format);
    if (!pattern.empty()) MILLRACE_TRY_VOID(narrow(search_dfa(pattern, Spelling::json, limits), DfaProduct::both));
  }
  for (const std::string& pattern : bounds.not_patterns)
    MILLRACE_TRY_VOID(narrow(schema_pattern_dfa(pattern, limits), DfaProduct::first_only));
  if (!bounds.excluded.empty()) {
    GrammarSpec spec;
    std::vector<ExprId> texts;
    for (const std::string& text : bounds.excluded) texts.push_back(spec.bytes(spell_json(text)));
    MILLRACE_TRY_VOID(narrow(make_dfa(spec, spec.choice(std::move(texts)), limits, what), DfaProduct::first_only));
  }
  if (dfa.empty()) return dfa;
  const auto [shortest, longest] = length_range(dfa);
  // A bound that the patterns imply needs no states.
  const uint32_t min = bounds.min_length <= shortest ? 0 : bounds.min_length;
  const uint32_t max = longest != kNoLimit && longest <= bounds.max_length ? kNoLimit : bounds.max_length;
  if (min > 0 || max != kNoLimit) MILLRACE_TRY_VOID(narrow(lengths(min, max, limits, what), DfaProduct::both));
  std::ranges::fill(dfa.ticks, uint8_t{0});
  return dfa;
}

}  // namespace millrace
