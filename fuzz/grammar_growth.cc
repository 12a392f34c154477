// Fuzzes what a grammar costs a step of the engine: whatever the grammar and the text, a call does no more work than
// its slice and a little, the whole answer stays within its bound, and slices change neither masks nor the point at
// which a bound ends the answer. The input is GBNF, a zero byte, and the text to take.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "text/grammar/constraint.h"

namespace {

using namespace millrace;

constexpr int64_t kBeyond = 1 << 19;  // units past the end of a slice: of one configuration's callers, or one walk

const std::shared_ptr<TokenMasks>& vocabulary(bool second) {
  static const auto make = [] {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.push_back(std::string(1, static_cast<char>(byte)));
    for (const char* text : {"ab", "abc", "((", "))", ", ", "aa", "aaaa", "\": \"", "true", "12"})
      pieces.push_back(text);
    return std::make_shared<TokenMasks>(pieces);
  };
  static const std::shared_ptr<TokenMasks> one = make(), two = make();
  return second ? two : one;
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// Calls with slices that double, until one does not pause. Adds to `work` what they did.
template <typename Call>
auto in_slices(GrammarMatcher& matcher, int64_t& work, Call call) {
  for (int64_t units = 4096;; units *= 2) {
    matcher.set_slice(units);
    auto result = call();
    expect(matcher.slice_left() > -kBeyond, "a call went far beyond its slice");
    work += units - matcher.slice_left();
    if (!matcher.paused()) return result;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = std::min(input.find('\0'), size);
  Constraint constraint;
  constraint.kind = Constraint::Kind::grammar;
  constraint.text = input.substr(0, nul);
  const std::string_view text = input.substr(std::min(nul + 1, size), 64);
  GrammarLimits limits;
  limits.nfa_states = 20'000;
  limits.dfa_states = 2'000;
  limits.total_states = 10'000;
  auto made = compile_constraint(constraint, limits);
  if (!made.ok()) return 0;
  const auto grammar = std::make_shared<const Grammar>(std::move(made).value());
  GrammarMatcher whole({grammar, vocabulary(false), vocabulary(false)->new_grammar()}),
      sliced({grammar, vocabulary(true), vocabulary(true)->new_grammar()}, false);
  std::vector<uint64_t> a(whole.words()), b(sliced.words());
  int64_t work = 0, most = 4 * GrammarMatcher::kFirstWork;  // slices that pause repeat a part
  for (size_t i = 0; i <= text.size(); ++i) {
    const size_t allowed = whole.mask(a);
    expect(in_slices(sliced, work, [&] { return sliced.mask(b); }) == allowed && a == b, "another mask in slices");
    expect(whole.exceeded() == sliced.exceeded(), "another bound in slices");
    most += 4 * GrammarMatcher::kTokenWork;
    expect(work < most, "more work than an answer may take");
    if (i == text.size()) break;
    const auto token = static_cast<TokenId>(static_cast<uint8_t>(text[i]));
    const bool accepted = whole.accept(token);
    expect(in_slices(sliced, work, [&] { return sliced.accept(token); }) == accepted, "another token in slices");
    expect(whole.complete() == sliced.complete(), "another end in slices");
    if (!accepted) break;
  }
  return 0;
}
