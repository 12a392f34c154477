// Fuzzes the GBNF parser and the parse table: any bytes are a grammar or an error, and the table accepts up to a
// hundred bytes of text within bounds.
#include <cstdint>
#include <cstdlib>

#include "text/grammar/constraint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  Constraint constraint;
  constraint.kind = Constraint::Kind::grammar;
  constraint.text.assign(reinterpret_cast<const char*>(data), size);
  GrammarLimits limits;
  limits.nfa_states = 20'000;
  limits.dfa_states = 2'000;
  limits.total_states = 10'000;
  auto grammar = compile_constraint(constraint, limits);
  if (!grammar.ok()) {
    if (grammar.error().message.empty()) std::abort();
    return 0;
  }
  ParseTable table(std::make_shared<const Grammar>(std::move(grammar).value()));
  SetId set = table.begin();
  for (int i = 0; i < 100 && set != kDead; ++i) {
    SetId next = kDead;
    for (int byte = 0; byte < 256 && next == kDead; ++byte) next = table.step(set, static_cast<uint8_t>(byte + 37 * i));
    if (next == kDead && !table.complete(set)) return 0;  // too ambiguous, which ends the parse
    set = next;
  }
  return 0;
}
