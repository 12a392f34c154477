// Fuzzes the JSON Schema compiler: any bytes are a grammar or a one-line error, and texts that complete a
// grammar are JSON.
#include <cstdint>
#include <cstdlib>

#include "base/json_library.h"
#include "text/grammar/constraint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  Constraint constraint;
  constraint.kind = Constraint::Kind::json_schema;
  constraint.text.assign(reinterpret_cast<const char*>(data), size);
  GrammarLimits limits;
  limits.nfa_states = 20'000;
  limits.dfa_states = 2'000;
  limits.total_states = 10'000;
  limits.alternatives = 16;
  auto grammar = compile_constraint(constraint, limits);
  if (!grammar.ok()) {
    if (grammar.error().message.empty()) std::abort();
    return 0;
  }
  // Follow closing punctuation if possible, else the lowest allowed byte; the text need not complete.
  ParseTable table(std::make_shared<const Grammar>(std::move(grammar).value()));
  SetId set = table.begin();
  std::string text;
  for (int i = 0; i < 200 && set != kDead && !table.complete(set); ++i) {
    SetId next = kDead;
    for (int byte : {'"', '}', ']', '0', 'n', 't', ':', ','}) {
      if (next == kDead && (next = table.step(set, static_cast<uint8_t>(byte))) != kDead)
        text += static_cast<char>(byte);
    }
    for (int byte = 0; byte < 256 && next == kDead; ++byte)
      if ((next = table.step(set, static_cast<uint8_t>(byte))) != kDead) text += static_cast<char>(byte);
    set = next;
  }
  if (set != kDead && table.complete(set) && !nlohmann::json::accept(text)) std::abort();
  return 0;
}
