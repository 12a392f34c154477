// Fuzzes the regex parser, for text and for JSON strings: any bytes are an automaton or an error.
#include "text/grammar/pattern.h"

#include <cstdint>
#include <cstdlib>

#include "text/grammar/constraint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  GrammarLimits limits;
  limits.nfa_states = 20'000;
  limits.dfa_states = 2'000;
  for (const Spelling spelling : {Spelling::utf8, Spelling::json}) {
    const auto dfa = search_dfa(text, spelling, limits);
    if (!dfa.ok() && dfa.error().message.empty()) std::abort();
  }
  Constraint constraint;
  constraint.kind = Constraint::Kind::regex;
  constraint.text = text;
  constraint.trigger = text.substr(0, 3);
  const auto grammar = compile_constraint(constraint, limits);
  if (!grammar.ok() && grammar.error().message.empty()) std::abort();
  return 0;
}
