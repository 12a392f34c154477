// The checks that an engine of this executor makes of a request without an evictor and without documents.
#pragma once

#include "run/compatibility/collect.h"
#include "run/compatibility/rules.h"
#include "run/executors/executor.h"

namespace millrace::testing {

inline Result<void> checked_request(const Executor& executor, const Request& request) {
  Facts facts = executor.facts();
  add_request(request, facts);
  MILLRACE_TRY_VOID(resolve(facts));
  return executor.check(request);
}

// The message that refuses an evictor in an engine of this executor; "" if none does.
inline std::string evictor_refusal(const Executor& executor, const std::string& evictor) {
  const auto rule = make_eviction_rule(evictor);
  if (!rule.ok()) return rule.error().message;
  Facts facts = executor.facts();
  add_evictor(**rule, facts);
  const auto resolved = resolve(facts);
  return resolved.ok() ? "" : resolved.error().message;
}

}  // namespace millrace::testing
