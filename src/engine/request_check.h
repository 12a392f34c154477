// Checks that an engine makes before it takes any memory: options and requests out of range. Each error names the
// option.
#pragma once

#include "millrace/options.h"
#include "millrace/request.h"
#include "run/executors/executor.h"
#include "schedule/view.h"

namespace millrace {

// Errors: user.
Result<void> check_options(const EngineOptions& options);
// Checks that the request could run in an idle engine. `facts`: of the engine, and of how the request's documents
// become keys and values. `rule`: null is none. Errors: user, unsupported, resource.
Result<void> check_request(const Request& request, const Executor& executor, const PlannerLimits& limits, Facts facts,
                           const EvictionRule* rule = nullptr);
// A request whose documents an encoder reads. `chosen` is what its context says, `own` the engine's, null if it has
// none. Errors: user.
Result<void> check_encoded(const Request& request, const EncoderChoice& chosen, const DocumentContext* own);
// An evictor with a list of budgets has one for each layer or KV head. Errors: user.
Result<void> check_budgets(const EvictionRule& rule, const ExecutorLimits& limits);
// Tokens of prompt and answer that the request's streams may reach: at most the context, unless their evictor (null:
// none) lets positions count stored tokens.
int64_t longest_stream(const Request& request, int64_t context, const EvictionRule* rule);

}  // namespace millrace
