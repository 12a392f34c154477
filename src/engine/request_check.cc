#include "engine/request_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/pool.h"

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

// `has_parts`: rows are links, and documents may be copies of what other requests have computed.
Result<void> check_reader(const Request& request, bool has_parts) {
  if (!request.reader) return {};
  if (!request.embeddings.empty() && !has_parts)
    return Error::unsupported("reader: not of prompts with rows in place of tokens");
  const int64_t apart = has_parts ? request.documents.back().end : 0;
  for (int64_t i = 0; i < apart; ++i)
    if (request.reader->wants(i))
      return Error::unsupported(fmt::format(
          "reader: wants position {}; documents that a context computes apart end at {}, and are not read", i, apart));
  if (request.n > 1 || request.best_of > 1 || request.beams > 1)
    return Error::unsupported("reader: of one answer only, whose prompt is computed once");
  return {};
}

// A prompt whose parts are computed apart from each other.
Result<void> check_parts(const Request& request, const Executor& executor, const EvictionRule* rule) {
  if (rule && rule->by_layer())
    return Error::unsupported(
        fmt::format("context: evictor {} has budgets by layer or head, with blocks for each, and documents are copied "
                    "in blocks of all layers; use an evictor with one budget, such as snapkv",
                    rule->text));
  MILLRACE_TRY_VOID(executor.check_context(false));
  if (rule && rule->whole_tokens(std::ssize(request.prompt)) > executor.limits().context)
    return Error::user(
        fmt::format("documents: end at token {}, and the {} that evictor {} keeps behind them exceed the context of "
                    "{}; shorten them or raise the context",
                    rule->joined, rule->slack, rule->text, executor.limits().context));
  if (request.beams > 1) return Error::unsupported("context: beam search shares a prompt's blocks; use n instead");
  return {};
}

}  // namespace

Result<void> check_options(const EngineOptions& options) {
  MILLRACE_TRY_VOID(make_eviction_rule(options.evictor));
  MILLRACE_TRY_VOID(make_document_context(options.document_context));
  MILLRACE_TRY_VOID(check_range("threads", options.threads, 0, 1024));
  MILLRACE_TRY_VOID(check_range("context", options.context, 0, INT32_MAX));
  MILLRACE_TRY_VOID(check_range("max streams", options.max_streams, 1, 65536));
  MILLRACE_TRY_VOID(check_range("resident streams", options.resident_streams, 0, 1 << 20));
  MILLRACE_TRY_VOID(check_range("queue", options.queue, 0, 1 << 24));
  MILLRACE_TRY_VOID(check_range("KV tokens", options.kv_tokens, 0, int64_t{1} << 40));
  MILLRACE_TRY_VOID(check_range("document tokens", options.document_tokens, 0, int64_t{1} << 40));
  MILLRACE_TRY_VOID(check_range("swap tokens", options.swap_tokens, 0, int64_t{1} << 40));
  if (!options.kv_ssd.empty())
    MILLRACE_TRY_VOID(check_range("KV store size", options.kv_ssd_size, 1, int64_t{1} << 50));
  if (!(options.kv_ssd_fetch > 0 && options.kv_ssd_fetch <= 1))
    return Error::user(
        fmt::format("KV store: fetches more than 0 and at most 1 of a prompt, got {}", options.kv_ssd_fetch));
  if (options.kv_ssd_fetch < 1 && options.kv_store.empty() && options.kv_ssd_order != "importance")
    return Error::user("KV store: to fetch a part of a prompt its blocks must be in order of importance");
  if (options.draft_length != "fixed" && options.draft_length != "auto")
    return Error::user(fmt::format("draft length: must be fixed or auto, got {}", options.draft_length));
  MILLRACE_TRY_VOID(check_range("KV block size", options.block_tokens, 1, kMaxBlockTokens));
  return check_range("batch tokens", options.batch_tokens, 1, 65536);
}

Result<void> check_request(const Request& request, const Executor& executor, const PlannerLimits& limits,
                           const EvictionRule* rule, bool has_parts) {
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
  MILLRACE_TRY_VOID(check_reader(request, has_parts));
  MILLRACE_TRY_VOID(executor.check(request));
  if (has_parts) MILLRACE_TRY_VOID(check_parts(request, executor, rule));
  if (rule) MILLRACE_TRY_VOID(executor.check_evictor(*rule));
  const int64_t longest = longest_stream(request, context, rule);
  if (longest > context && rule->most_stored() > context)
    return Error::user(fmt::format(
        "evictor: keeps {} tokens and {} more before it chooses, which exceeds the context of {}; lower its budget",
        rule->evictor->budget(), rule->slack, context));
  if (rule && request.beams > 1)
    return Error::unsupported("beams: share keys and values, which an evictor cannot drop");
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
  if (!request.embeddings.empty())
    return Error::unsupported("context cepe: not of prompts with rows in place of tokens");
  if (request.reader) return Error::unsupported("context cepe: not of prompts that are read");
  if (request.beams > 1) return Error::unsupported("context cepe: not with beam search; use n instead");
  return {};
}

Result<void> check_evicted_parts(const ContextPlan& plan, const EvictionRule& rule) {
  if (!rule.moves_keys() || plan.moved == 0) return {};
  return Error::unsupported(
      fmt::format("context: documents share positions, and evictor {} makes positions of slots; use positions=text, or "
                  "a context that moves keys, such as kvlink",
                  rule.text));
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
