#include "text/grammar/nfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "text/grammar/key_tree.h"

namespace millrace {
namespace {

class Builder {
 public:
  Builder(const GrammarSpec& spec, const GrammarLimits& limits, std::string_view what)
      : spec_(spec), limits_(limits), what_(what) {
    nfa_.share = BudgetShare(limits.budget);
  }

  Result<Nfa> build(ExprId expr) {
    nfa_.start = add_state();
    nfa_.accept = add_state();
    MILLRACE_TRY_VOID(add(expr, nfa_.start, nfa_.accept, 0));
    MILLRACE_TRY_VOID(check_size());
    return std::move(nfa_);
  }

 private:
  // The most that one expression (a text, an automaton, a character class) may add between two size checks.
  static constexpr int64_t kMaxAtOnce = 1 << 16;

  int32_t add_state() {
    const int32_t state = nfa_.add_state();
    nfa_.states.back().copies = copies_;
    return state;
  }

  [[gnu::noinline]] Error too_deep() const { return Error::unsupported(fmt::format("{}: nested too deeply", what_)); }
  [[gnu::noinline]] Result<void> check_size() {
    if (static_cast<int64_t>(nfa_.states.size()) > limits_.nfa_states ||
        static_cast<int64_t>(nfa_.edges.size()) > 64 * limits_.nfa_states)
      return too_large();
    MILLRACE_TRY_VOID(nfa_.share.check());
    return nfa_.bytes() == nfa_.share.bytes() ? Result<void>() : nfa_.share.resize(nfa_.bytes());
  }
  // Call before adding `states` states with about as many edges.
  Result<void> check_room(int64_t states) {
    if (states <= kMaxAtOnce) return {};
    if (static_cast<int64_t>(nfa_.states.size()) + states > limits_.nfa_states) return too_large();
    return nfa_.share.resize(nfa_.bytes() + 3 * states * static_cast<int64_t>(sizeof(Nfa::State) + sizeof(NfaEdge)));
  }
  Error too_large() const {
    return Error::unsupported(
        fmt::format("{}: too large, it needs more than {} states; lower its repetitions", what_, limits_.nfa_states));
  }

  void add_text(std::string_view text, int32_t from, int32_t to) {
    if (text.empty()) return nfa_.add_empty(from, to);
    for (size_t i = 0; i < text.size(); ++i) {
      const int32_t next = i + 1 == text.size() ? to : add_state();
      nfa_.add_bytes(from, static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i]), next);
      from = next;
    }
  }

  void add_raw(CharRange range, int32_t from, int32_t to) {
    for_each_utf8(range, [&](const ByteSequence& sequence) {
      int32_t at = from;
      for (int i = 0; i < sequence.length; ++i) {
        const int32_t next = i + 1 == sequence.length ? to : add_state();
        nfa_.add_bytes(at, sequence.first[static_cast<size_t>(i)], sequence.last[static_cast<size_t>(i)], next);
        at = next;
      }
    });
  }

  void add_escaped(uint32_t c, int32_t from, int32_t to) {
    switch (c) {
      case '"': return add_text("\\\"", from, to);
      case '\\': return add_text("\\\\", from, to);
      case '\b': return add_text("\\b", from, to);
      case '\f': return add_text("\\f", from, to);
      case '\n': return add_text("\\n", from, to);
      case '\r': return add_text("\\r", from, to);
      case '\t': return add_text("\\t", from, to);
      default: break;
    }
    const int32_t last = add_state();
    add_text(c < 0x10 ? "\\u000" : "\\u001", from, last);
    const uint32_t digit = c & 0xF;
    nfa_.add_bytes(last, static_cast<uint8_t>(digit < 10 ? '0' + digit : 'a' + digit - 10),
                   static_cast<uint8_t>(digit < 10 ? '0' + digit : 'a' + digit - 10), to);
    if (digit >= 10)
      nfa_.add_bytes(last, static_cast<uint8_t>('A' + digit - 10), static_cast<uint8_t>('A' + digit - 10), to);
  }

  void add_chars(const Expr& expr, int32_t from, int32_t to) {
    if (expr.spelling == Spelling::utf8) {
      for (CharRange range : expr.set) add_raw(range, from, to);
      return;
    }
    static const CharSet kEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    for (CharRange range : intersection(expr.set, complement(kEscaped))) add_raw(range, from, to);
    for (CharRange range : intersection(expr.set, kEscaped))
      for (uint32_t c = range.first; c <= range.last; ++c) add_escaped(c, from, to);
  }

  // Whether the expression accepts the empty text. Expressions nested too deeply are rejected by add().
  bool nullable(ExprId id, int depth = 0) {
    if (depth > 4 * limits_.depth) return false;
    if (auto found = nullable_.find(id); found != nullable_.end()) return found->second;
    const Expr& expr = spec_.at(id);
    bool yes = false;
    const auto one = [&](ExprId part) { return nullable(part, depth + 1); };
    switch (expr.kind) {
      case Expr::Kind::bytes: yes = expr.text.empty(); break;
      case Expr::Kind::sequence: yes = std::ranges::all_of(expr.parts, one); break;
      case Expr::Kind::choice: yes = std::ranges::any_of(expr.parts, one); break;
      case Expr::Kind::repeat: yes = expr.min == 0 || one(expr.parts[0]); break;
      case Expr::Kind::dfa: yes = expr.dfa->accepting[0]; break;
      default: break;  // a tick is not empty, and ^ and $ are only in some positions
    }
    return nullable_[id] = yes;
  }

  // Adds the part `count` times after `from`; returns the end of the last one. If `leave` >= 0, each copy is optional
  // and may be skipped to `leave`.
  [[gnu::noinline]] Result<int32_t> add_copies(ExprId part, uint32_t count, int32_t from, int32_t leave, int depth) {
    for (uint32_t i = 0; i < count; ++i) {
      if (leave >= 0) nfa_.add_empty(from, leave);
      const int32_t next = add_state();
      MILLRACE_TRY_VOID(add(part, from, next, depth));
      from = next;
    }
    return from;
  }

  static constexpr int16_t kMaxLevels = 4;  // of nested copies that are tracked

  // Opens copies of one part: states added from here on belong to them. -1: nested deeper than tracked.
  int32_t open_copies(bool open) {
    if (nfa_.levels < kMaxLevels && level_ >= nfa_.levels) nfa_.levels = static_cast<int32_t>(level_ + 1);
    if (level_ >= kMaxLevels) return -1;
    nfa_.copies.push_back({static_cast<int32_t>(nfa_.states.size()), 0, copies_, level_++, open});
    return copies_ = static_cast<int32_t>(nfa_.copies.size()) - 1;
  }
  void close_copies(int32_t id, uint32_t count) {
    if (id < 0) return;
    NfaCopies& copies = nfa_.copies[static_cast<size_t>(id)];
    copies.size = (static_cast<int32_t>(nfa_.states.size()) - copies.base) / static_cast<int32_t>(count);
    copies_ = copies.parent;
    --level_;
  }

  [[gnu::noinline]] Result<void> add_repeat(const Expr& expr, int32_t from, int32_t to, int depth) {
    const ExprId part = expr.parts[0];
    const uint32_t min = nullable(part) ? 0 : expr.min;  // an empty part satisfies any minimum
    if (expr.max == kNoLimit) {
      const int32_t copies = min > 0 ? open_copies(true) : -1;
      MILLRACE_TRY(from, add_copies(part, min, from, -1, depth));
      const int32_t loop = add_state();
      nfa_.add_empty(from, loop);
      nfa_.add_empty(loop, to);
      MILLRACE_TRY_VOID(add(part, loop, loop, depth));
      close_copies(copies, min + 1);
      return {};
    }
    MILLRACE_TRY(from, add_copies(part, min, from, -1, depth));
    if (expr.max > min) {
      const int32_t copies = expr.max > min + 1 ? open_copies(false) : -1;
      MILLRACE_TRY(from, add_copies(part, expr.max - min, from, to, depth));
      close_copies(copies, expr.max - min);
    }
    nfa_.add_empty(from, to);
    return {};
  }

  Result<void> add_dfa(const Dfa& dfa, int32_t from, int32_t to) {
    MILLRACE_TRY_VOID(check_room(dfa.size()));
    const auto base = static_cast<int32_t>(nfa_.states.size());
    for (int32_t s = 0; s < dfa.size(); ++s)
      nfa_.states[static_cast<size_t>(add_state())].tick = dfa.ticks[static_cast<size_t>(s)] != 0;
    nfa_.add_empty(from, base);
    for (int32_t s = 0; s < dfa.size(); ++s) {
      if (s % 1024 == 1023) MILLRACE_TRY_VOID(check_size());
      for (int first = 0; first < 256;) {
        const int32_t target = dfa.step(s, static_cast<uint8_t>(first));
        int last = first;
        while (last < 255 && dfa.step(s, static_cast<uint8_t>(last + 1)) == target) ++last;
        if (target >= 0)
          nfa_.add_bytes(base + s, static_cast<uint8_t>(first), static_cast<uint8_t>(last), base + target);
        first = last + 1;
      }
      for (const Dfa::Call& call : dfa.calls[static_cast<size_t>(s)]) add_call(call, base + s, base + call.to);
      if (dfa.accepting[static_cast<size_t>(s)]) nfa_.add_empty(base + s, to);
    }
    return check_size();
  }

  void add_call(const Dfa::Call& call, int32_t from, int32_t to) {
    nfa_.calls.push_back(call);
    nfa_.add_edge(from, {NfaEdge::Kind::call, 0, 0, static_cast<int32_t>(nfa_.calls.size()) - 1, to, -1});
  }

  // Two states before each member: `none` (no member so far) and `some` (a separator is required):
  //   none ----------> the next none             skips an optional member; likewise from some to some
  //   none ----------> [member] --> the next some, or this one for a repeatable member
  //   some --separator--> [member]
  [[gnu::noinline]] Result<void> add_list(const Expr& expr, int32_t from, int32_t to, int depth) {
    int32_t none = add_state(), some = add_state();
    nfa_.add_empty(from, none);
    for (size_t i = 1; i < expr.parts.size(); ++i) {
      const char count = expr.text[i - 1];
      const int32_t in = add_state(), none_after = add_state(), some_after = add_state();
      nfa_.add_empty(none, in);
      MILLRACE_TRY_VOID(add(expr.parts[0], some, in, depth));
      const int32_t out = add_state();
      MILLRACE_TRY_VOID(add(expr.parts[i], in, out, depth));
      nfa_.add_empty(out, count == '*' ? some : some_after);
      if (count != '1') {
        nfa_.add_empty(none, none_after);
        nfa_.add_empty(some, some_after);
      }
      none = none_after;
      some = some_after;
    }
    if (expr.min == 0) nfa_.add_empty(none, to);
    nfa_.add_empty(some, to);
    return {};
  }

  // A state after each member, where a separator is required, and a tree of the keys that may follow:
  //   none -------opening--> tree, place 0 --key 2--> [content 2] --> some 3
  //   some i --separator--> between i --opening--> tree, place i
  [[gnu::noinline]] Result<void> add_keyed(const Expr& expr, int32_t from, int32_t to, int depth) {
    const ExprId separator = expr.parts[0], opening = expr.parts[1];
    const size_t n = expr.keys.size();
    const ExprId others = expr.parts.size() > n + 2 ? expr.parts[n + 2] : -1;
    MILLRACE_TRY(const KeyTree tree, make_key_tree(expr.keys, expr.text, limits_.budget));
    MILLRACE_TRY_VOID(check_room(std::max<int64_t>(tree.states, static_cast<int64_t>(tree.edges.size()) / 4)));
    const auto base = static_cast<int32_t>(nfa_.states.size());
    for (int32_t s = 0; s < tree.states; ++s) add_state();
    for (const KeyTree::Edge& edge : tree.edges) nfa_.add_bytes(base + edge.from, edge.byte, edge.byte, base + edge.to);
    const size_t last = expr.text.rfind('1');  // the last required member: the list may end only after it
    const size_t ends_from = last == std::string::npos ? 0 : last + 1;
    int32_t other_in = -1;
    if (others >= 0) {
      other_in = add_state();
      const int32_t other_out = add_state();
      MILLRACE_TRY_VOID(add(others, other_in, other_out, depth));
      MILLRACE_TRY_VOID(add(separator, other_out, other_in, depth));
      nfa_.add_empty(other_out, to);
    }
    const int32_t none = add_state();
    nfa_.add_empty(from, none);
    for (size_t i = 0; i <= n; ++i) {
      int32_t between = none;
      if (i > 0) {
        const int32_t some = add_state();
        MILLRACE_TRY_VOID(add(expr.parts[i + 1], base + tree.ends[i - 1], some, depth));
        if (i >= ends_from) nfa_.add_empty(some, to);
        if (i == n && other_in < 0) break;
        between = add_state();
        MILLRACE_TRY_VOID(add(separator, some, between, depth));
      } else if (ends_from == 0 && expr.min == 0) {
        nfa_.add_empty(none, to);
      }
      if (i < n) MILLRACE_TRY_VOID(add(opening, between, base + static_cast<int32_t>(i), depth));
      if (i >= ends_from && other_in >= 0) nfa_.add_empty(between, other_in);
    }
    return {};
  }

  [[gnu::noinline]] Result<void> add_parts(const Expr& expr, int32_t from, int32_t to, int depth) {
    if (expr.kind == Expr::Kind::choice) {
      for (ExprId part : expr.parts) {
        // Separate states, so that a loop in one part cannot lead into another.
        const int32_t in = add_state(), out = add_state();
        nfa_.add_empty(from, in);
        nfa_.add_empty(out, to);
        MILLRACE_TRY_VOID(add(part, in, out, depth));
      }
      return {};
    }
    for (ExprId part : expr.parts) {
      const int32_t next = add_state();
      MILLRACE_TRY_VOID(add(part, from, next, depth));
      from = next;
    }
    nfa_.add_empty(from, to);
    return {};
  }

  // The part adds no edge into `from` and none out of `to`; loops add their own states. What add() calls is not
  // inlined, so that a level of the recursion takes little of the stack.
  Result<void> add(ExprId id, int32_t from, int32_t to, int depth) {
    if (auto checked = check_size(); !checked.ok()) return checked;
    if (depth > 4 * limits_.depth) return too_deep();
    const Expr& expr = spec_.at(id);
    switch (expr.kind) {
      case Expr::Kind::sequence:
      case Expr::Kind::choice: return add_parts(expr, from, to, depth + 1);
      case Expr::Kind::repeat: return add_repeat(expr, from, to, depth + 1);
      case Expr::Kind::list: return add_list(expr, from, to, depth + 1);
      case Expr::Kind::keyed: return add_keyed(expr, from, to, depth + 1);
      default: return add_leaf(expr, from, to);
    }
  }

  [[gnu::noinline]] Result<void> add_leaf(const Expr& expr, int32_t from, int32_t to) {
    switch (expr.kind) {
      case Expr::Kind::never: return {};
      case Expr::Kind::bytes:
        MILLRACE_TRY_VOID(check_room(static_cast<int64_t>(expr.text.size())));
        return add_text(expr.text, from, to), Result<void>();
      case Expr::Kind::byte_set:
        for (char c : expr.text) nfa_.add_bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
        return {};
      case Expr::Kind::chars: return add_chars(expr, from, to), Result<void>();
      case Expr::Kind::dfa: return add_dfa(*expr.dfa, from, to);
      case Expr::Kind::call: return add_call({expr.rule, expr.need, expr.room, -1}, from, to), Result<void>();
      case Expr::Kind::tick: {
        const int32_t state = add_state();
        nfa_.states[static_cast<size_t>(state)].tick = true;
        nfa_.add_empty(from, state);
        nfa_.add_empty(state, to);
        return {};
      }
      case Expr::Kind::begin: nfa_.add_edge(from, {NfaEdge::Kind::begin, 0, 0, -1, to, -1}); return {};
      case Expr::Kind::end: nfa_.add_edge(from, {NfaEdge::Kind::end, 0, 0, -1, to, -1}); return {};
      default: return {};
    }
  }

  const GrammarSpec& spec_;
  const GrammarLimits& limits_;
  std::string_view what_;
  Nfa nfa_;
  std::unordered_map<ExprId, bool> nullable_;
  int32_t copies_ = -1;  // the copies that contain new states
  int16_t level_ = 0;
};

}  // namespace

Result<Nfa> make_nfa(const GrammarSpec& spec, ExprId expr, const GrammarLimits& limits, std::string_view what) {
  return Builder(spec, limits, what).build(expr);
}

}  // namespace millrace
