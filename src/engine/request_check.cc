#include "engine/request_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/pool.h"
#include "run/compatibility/collect.h"
#include "run/compatibility/rules.h"

namespace millrace {
namespace {

constexpr int64_t kMaxAnswers = 128;

Result<void> check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return Error::user(fmt::format("{}: must be between {} and {}, got {}", name, min, max, value));
}

Result<void> check_seconds(const char* name, double value) {
  if (value >= 0 && value <= 1e9) return {};
  return Error::user(fmt::format("{}: must be between 0 and 1e9 seconds, got {}", name, value));
}

Result<void> check_answers(const Request& request) {
  MILLRACE_TRY_VOID(check_range("n", request.n, 1, kMaxAnswers));
  MILLRACE_TRY_VOID(check_range("beams", request.beams, 1, kMaxAnswers));
  if (request.best_of != 0) MILLRACE_TRY_VOID(check_range("best_of", request.best_of, request.n, kMaxAnswers));
  if (request.beams == 1) return {};
  if (request.best_of > request.n) return Error::user("best_of: does not go with beams, which already choose the best");
  if (request.n > request.beams) return Error::user(fmt::format("n: {} answers of {} beams", request.n, request.beams));
  if (!(request.length_penalty >= -100 && request.length_penalty <= 100)) {
    return Error::user(fmt::format("length penalty: must be between -100 and 100, got {}", request.length_penalty));
  }
  return {};
}

Result<void> check_documents(const Request& request) {
  int64_t end = 0;
  for (const PromptDocument& document : request.documents) {
    if (document.begin < end || document.end <= document.begin)
      return Error::user(fmt::format("documents: tokens {} to {} are empty or not behind the document before",
                                     document.begin, document.end));
    end = document.end;
  }
  const int64_t prompt = std::ssize(request.prompt);
  if (end >= prompt && end > 0)
    return Error::user(
        fmt::format("documents: end at token {} of a prompt of {}; a question must follow", end, prompt));
  return {};
}

// Checks a prompt whose documents are computed separately, and whose tokens an evictor drops behind the documents.
Result<void> check_joined(const Request& request, const Executor& executor, const EvictionRule& rule) {
  if (rule.whole_tokens(std::ssize(request.prompt)) <= executor.limits().context) return {};
  return Error::user(
      fmt::format("documents: end at token {}, and the {} that evictor {} keeps behind them exceed the context of "
                  "{}; shorten them or raise the context",
                  rule.joined, rule.slack, rule.text, executor.limits().context));
}

}  // namespace

Result<void> check_options(const EngineOptions& options) {
  MILLRACE_TRY_VOID(check_range("threads", options.threads, 0, 1024));
  MILLRACE_TRY_VOID(check_range("context", options.context, 0, INT32_MAX));
  MILLRACE_TRY_VOID(check_range("max streams", options.max_streams, 1, 65536));
  MILLRACE_TRY_VOID(check_range("resident streams", options.resident_streams, 0, 1 << 20));
  MILLRACE_TRY_VOID(check_range("queue", options.queue, 0, 1 << 24));
  MILLRACE_TRY_VOID(check_range("KV tokens", options.kv_tokens, 0, int64_t{1} << 40));
  MILLRACE_TRY_VOID(check_range("document tokens", options.document_tokens, 0, int64_t{1} << 40));
  MILLRACE_TRY_VOID(check_range("state cache", options.state_cache_bytes, 0, int64_t{1} << 50));
  MILLRACE_TRY_VOID(check_range("state stride", options.state_stride, 1, kMaxBlockTokens));
  if (options.draft_length != "fixed" && options.draft_length != "auto")
    return Error::user(fmt::format("draft length: must be fixed or auto, got {}", options.draft_length));
  MILLRACE_TRY_VOID(check_range("KV block size", options.block_tokens, 1, kMaxBlockTokens));
  return check_range("batch tokens", options.batch_tokens, 1, 65536);
}

Result<void> check_request(const Request& request, const Executor& executor, const PlannerLimits& limits, Facts facts,
                           const EvictionRule* rule) {
  const int64_t context = executor.limits().context;
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return Error::user("prompt: must hold at least one token");
  const bool read_only = request.reader && request.max_tokens == 0;
  // Tokens that count as positions at once.
  const bool endless = rule && rule->moves_keys();
  const bool long_prompt = endless && !rule->whole_prompt;
  if (!long_prompt && (prompt > context || (prompt == context && !read_only && !endless))) {
    return Error::user(fmt::format(
        "prompt: {} tokens do not leave room for an answer in a context of {}; shorten it or raise the context", prompt,
        context));
  }
  if (request.max_tokens < -1)
    return Error::user(fmt::format("max_tokens: must be -1 or more, got {}", request.max_tokens));
  if (request.min_tokens < 0)
    return Error::user(fmt::format("min_tokens: must be 0 or more, got {}", request.min_tokens));
  MILLRACE_TRY_VOID(check_answers(request));
  MILLRACE_TRY_VOID(check_seconds("deadline", request.deadline_seconds));
  MILLRACE_TRY_VOID(check_seconds("time limit", request.time_limit_seconds));
  MILLRACE_TRY_VOID(check_seconds("keep", request.keep_seconds));
  MILLRACE_TRY_VOID(check_documents(request));
  add_request(request, facts);
  if (rule) add_evictor(*rule, facts);
  MILLRACE_TRY_VOID(resolve(facts));
  MILLRACE_TRY_VOID(executor.check(request));
  if (rule && facts.has(facts::kDocumentsApart)) MILLRACE_TRY_VOID(check_joined(request, executor, *rule));
  if (rule) MILLRACE_TRY_VOID(check_budgets(*rule, executor.limits()));
  const int64_t longest = longest_stream(request, context, rule);
  if (longest > context && rule->most_stored() > context)
    return Error::user(fmt::format(
        "evictor: keeps {} tokens and {} more before it chooses, which exceeds the context of {}; lower its budget",
        rule->evictor->budget(), rule->slack, context));
  if (request.beams > limits.residents()) {
    return Error::user(
        fmt::format("beams: at most {} streams run at once, {} asked for", limits.residents(), request.beams));
  }
  const int64_t tokens = kv_demand(rule, prompt, longest, limits.tables);
  const int64_t blocks = limits.tables > 1 ? blocks_demand(rule, prompt, longest, limits.tables, limits.block_tokens)
                                           : limits.blocks_for(limits.held(tokens));
  const char* const table = limits.per_head_tables ? "KV head" : "layer";
  if (request.beams * blocks > limits.total_blocks && limits.tables > 1)
    return Error::resource(
        fmt::format("KV cache: {} tokens in each of {} {}s, on average, do not fit in {} blocks of {} in one {}; "
                    "ask for fewer tokens or enlarge the cache",
                    tokens, limits.tables, table, limits.total_blocks, limits.block_tokens, table));
  if (request.beams * blocks > limits.total_blocks) {
    return Error::resource(fmt::format(
        "KV cache: {} tokens{} do not fit in {} blocks of {}; ask for fewer tokens or enlarge the cache", tokens,
        request.beams > 1 ? fmt::format(" of {} beams", request.beams) : "", limits.total_blocks, limits.block_tokens));
  }
  return {};
}

Result<void> check_encoded(const Request& request, const EncoderChoice& chosen, const DocumentContext* own) {
  const bool names = request.document_context.find(':') != std::string::npos;
  if (names && (!own || !own->encoder() || !(*own->encoder() == chosen)))
    return Error::user("context cepe: its options are those of the engine; a request names it without, context=cepe");
  return {};
}

Result<void> check_budgets(const EvictionRule& rule, const ExecutorLimits& limits) {
  return limits.layers > 0 ? rule.evictor->check_layers(limits.layers, limits.kv_heads) : Result<void>();
}

int64_t longest_stream(const Request& request, int64_t context, const EvictionRule* rule) {
  constexpr int64_t kLongestText = INT32_MAX;  // indices of tokens are 32 bits
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  if (!rule || !rule->moves_keys())
    return request.max_tokens < 0 ? context : std::min(context, prompt + request.max_tokens);
  // Without a limit as long as without an evictor, or one context behind a prompt that fills it.
  if (request.max_tokens < 0) return prompt < context ? context : std::min(kLongestText, prompt + context);
  return std::min(kLongestText, prompt + std::min(kLongestText, request.max_tokens));
}

}  // namespace millrace
