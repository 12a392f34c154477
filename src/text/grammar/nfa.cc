#include "text/grammar/nfa.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

class Builder {
 public:
  Builder(const GrammarSpec& spec, const GrammarLimits& limits, std::string_view what)
      : spec_(spec), limits_(limits), what_(what) {}

  Result<Nfa> build(ExprId expr) {
    nfa_.start = nfa_.add_state();
    nfa_.accept = nfa_.add_state();
    MILLRACE_TRY_VOID(add(expr, nfa_.start, nfa_.accept, 0));
    return std::move(nfa_);
  }

 private:
  Result<void> check_size() const {
    if (static_cast<int64_t>(nfa_.states.size()) <= limits_.nfa_states) return {};
    return Error::unsupported(fmt::format("{}: too large, it needs more than {} states; lower its repetitions", what_, limits_.nfa_states));
  }

  void add_text(std::string_view text, int32_t from, int32_t to) {
    if (text.empty()) return nfa_.add_empty(from, to);
    for (size_t i = 0; i < text.size(); ++i) {
      const int32_t next = i + 1 == text.size() ? to : nfa_.add_state();
      nfa_.add_bytes(from, static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i]), next);
      from = next;
    }
  }

  void add_raw(CharRange range, int32_t from, int32_t to) {
    for_each_utf8(range, [&](const ByteSequence& sequence) {
      int32_t at = from;
      for (int i = 0; i < sequence.length; ++i) {
        const int32_t next = i + 1 == sequence.length ? to : nfa_.add_state();
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
    const int32_t last = nfa_.add_state();
    add_text(c < 0x10 ? "\\u000" : "\\u001", from, last);
    const uint32_t digit = c & 0xF;
    nfa_.add_bytes(last, static_cast<uint8_t>(digit < 10 ? '0' + digit : 'a' + digit - 10),
                   static_cast<uint8_t>(digit < 10 ? '0' + digit : 'a' + digit - 10), to);
    if (digit >= 10) nfa_.add_bytes(last, static_cast<uint8_t>('A' + digit - 10), static_cast<uint8_t>('A' + digit - 10), to);
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

  Result<void> add_repeat(const Expr& expr, int32_t from, int32_t to, int depth) {
    for (uint32_t i = 0; i < expr.min; ++i) {
      const int32_t next = nfa_.add_state();
      MILLRACE_TRY_VOID(add(expr.parts[0], from, next, depth));
      from = next;
    }
    if (expr.max == kNoLimit) {
      const int32_t loop = nfa_.add_state();
      nfa_.add_empty(from, loop);
      nfa_.add_empty(loop, to);
      return add(expr.parts[0], loop, loop, depth);
    }
    for (uint32_t i = expr.min; i < expr.max; ++i) {
      nfa_.add_empty(from, to);
      const int32_t next = nfa_.add_state();
      MILLRACE_TRY_VOID(add(expr.parts[0], from, next, depth));
      from = next;
    }
    nfa_.add_empty(from, to);
    return {};
  }

  void add_dfa(const Dfa& dfa, int32_t from, int32_t to) {
    const auto base = static_cast<int32_t>(nfa_.states.size());
    for (int32_t s = 0; s < dfa.size(); ++s) nfa_.states[static_cast<size_t>(nfa_.add_state())].tick = dfa.ticks[static_cast<size_t>(s)] != 0;
    nfa_.add_empty(from, base);
    for (int32_t s = 0; s < dfa.size(); ++s) {
      for (int first = 0; first < 256;) {
        const int32_t target = dfa.step(s, static_cast<uint8_t>(first));
        int last = first;
        while (last < 255 && dfa.step(s, static_cast<uint8_t>(last + 1)) == target) ++last;
        if (target >= 0) nfa_.add_bytes(base + s, static_cast<uint8_t>(first), static_cast<uint8_t>(last), base + target);
        first = last + 1;
      }
      for (const Dfa::Call& call : dfa.calls[static_cast<size_t>(s)]) add_call(call, base + s, base + call.to);
      if (dfa.accepting[static_cast<size_t>(s)]) nfa_.add_empty(base + s, to);
    }
  }

  void add_call(Dfa::Call call, int32_t from, int32_t to) {
    call.to = -1;
    nfa_.calls.push_back(call);
    nfa_.add_edge(from, {NfaEdge::Kind::call, 0, 0, static_cast<int32_t>(nfa_.calls.size()) - 1, to, -1});
  }

  // Two states before each member, one where none has come yet and one where a separator must go first:
  //   none ----------> none of the next place    past a member that may be left out; likewise from some to some
  //   none ----------> [member] --> some of the next place, or of this one for a member that comes often
  //   some --separator--> [member]
  Result<void> add_list(const Expr& expr, int32_t from, int32_t to, int depth) {
    int32_t none = nfa_.add_state(), some = nfa_.add_state();
    nfa_.add_empty(from, none);
    for (size_t i = 1; i < expr.parts.size(); ++i) {
      const char count = expr.text[i - 1];
      const int32_t in = nfa_.add_state(), none_after = nfa_.add_state(), some_after = nfa_.add_state();
      nfa_.add_empty(none, in);
      MILLRACE_TRY_VOID(add(expr.parts[0], some, in, depth));
      const int32_t out = nfa_.add_state();
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

  Result<void> add_parts(const Expr& expr, int32_t from, int32_t to, int depth) {
    if (expr.kind == Expr::Kind::choice) {
      for (ExprId part : expr.parts) {
        // States of its own, so that a loop in one part cannot lead into another.
        const int32_t in = nfa_.add_state(), out = nfa_.add_state();
        nfa_.add_empty(from, in);
        nfa_.add_empty(out, to);
        MILLRACE_TRY_VOID(add(part, in, out, depth));
      }
      return {};
    }
    for (ExprId part : expr.parts) {
      const int32_t next = nfa_.add_state();
      MILLRACE_TRY_VOID(add(part, from, next, depth));
      from = next;
    }
    nfa_.add_empty(from, to);
    return {};
  }

  // `from` has no edge into it from within the part, `to` none out of it; loops bring their own states.
  Result<void> add(ExprId id, int32_t from, int32_t to, int depth) {
    MILLRACE_TRY_VOID(check_size());
    if (depth > 4 * limits_.depth) return Error::unsupported(fmt::format("{}: nested too deeply", what_));
    const Expr& expr = spec_.at(id);
    switch (expr.kind) {
      case Expr::Kind::never: return {};
      case Expr::Kind::bytes: return add_text(expr.text, from, to), Result<void>();
      case Expr::Kind::byte_set:
        for (char c : expr.text) nfa_.add_bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
        return {};
      case Expr::Kind::chars: return add_chars(expr, from, to), Result<void>();
      case Expr::Kind::sequence:
      case Expr::Kind::choice: return add_parts(expr, from, to, depth + 1);
      case Expr::Kind::repeat: return add_repeat(expr, from, to, depth + 1);
      case Expr::Kind::dfa: return add_dfa(*expr.dfa, from, to), check_size();
      case Expr::Kind::list: return add_list(expr, from, to, depth + 1);
      case Expr::Kind::call: return add_call({expr.rule, expr.need, expr.room, -1}, from, to), Result<void>();
      case Expr::Kind::tick: {
        const int32_t state = nfa_.add_state();
        nfa_.states[static_cast<size_t>(state)].tick = true;
        nfa_.add_empty(from, state);
        nfa_.add_empty(state, to);
        return {};
      }
      case Expr::Kind::begin: nfa_.add_edge(from, {NfaEdge::Kind::begin, 0, 0, -1, to, -1}); return {};
      case Expr::Kind::end: nfa_.add_edge(from, {NfaEdge::Kind::end, 0, 0, -1, to, -1}); return {};
    }
    return {};
  }

  const GrammarSpec& spec_;
  const GrammarLimits& limits_;
  std::string_view what_;
  Nfa nfa_;
};

}  // namespace

Result<Nfa> make_nfa(const GrammarSpec& spec, ExprId expr, const GrammarLimits& limits, std::string_view what) {
  return Builder(spec, limits, what).build(expr);
}

}  // namespace millrace
