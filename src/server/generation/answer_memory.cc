#include "server/generation/answer_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/generation/answer.h"

namespace millrace {
namespace {

// Parts of a budget: one of so many.
constexpr int64_t kValuesPart = 8, kUnsentPart = 32, kResumablePart = 16;
constexpr int64_t kMinStreams = 8;  // resumable streams that have room at the same time

// The regression test measures that these are enough.
constexpr int64_t kReplyBytes = 256 << 10;  // parts of a reply: one being written, one being sent
constexpr int64_t kAnswerBytes = 8 << 10;   // of an answer: parsers, events on their way
constexpr int64_t kTextBytes = 128;   // of a token in a whole reply: text and id, as values, as JSON and as its text
constexpr int64_t kEventBytes = 512;  // of a streamed token with log-probabilities, on its way to its connection
constexpr int64_t kTakenLogprobBytes = 1024;  // of a log-probability as text and as JSON
constexpr int64_t kListBytes = 32;            // of the list of a token's most likely tokens
constexpr int64_t kPromptCopies = 4;          // of a prompt's text that is returned

int64_t values_of(int64_t top) {
  // Lists grow to twice their contents.
  return 2 * static_cast<int64_t>(sizeof(ChosenToken)) +
         (top > 0 ? kListBytes + top * static_cast<int64_t>(sizeof(TokenLogprob)) : 0);
}

}  // namespace

AnswerParts answer_parts(int64_t budget, int64_t divisor) {
  return {budget / kValuesPart / divisor, budget / kUnsentPart / divisor, budget / kResumablePart / divisor};
}

StreamLimits within(StreamLimits limits, const AnswerParts& parts) {
  if (parts.resumable == 0) return limits;
  limits.total_bytes = std::min(limits.total_bytes, parts.resumable / 2);  // the other half: copies being sent
  limits.stream_bytes = std::min(limits.stream_bytes, limits.total_bytes / kMinStreams);
  return limits;
}

Result<std::shared_ptr<AnswerMemory>> AnswerMemory::of_budget(const std::shared_ptr<MemoryAccounts>& accounts,
                                                              int64_t divisor) {
  if (!accounts || accounts->budget() == 0) return std::make_shared<AnswerMemory>();
  const AnswerParts parts = answer_parts(accounts->budget(), divisor);
  auto memory = std::make_shared<AnswerMemory>(parts);
  MILLRACE_TRY(memory->account_, MemoryHold::take(accounts, "answers", parts.total(), "raise the budget"));
  return memory;
}

int64_t AnswerMemory::held() const {
  std::lock_guard lock(mutex_);
  return held_;
}

std::optional<ApiError> AnswerMemory::take(const std::shared_ptr<AnswerMemory>& memory, int64_t bytes,
                                           std::unique_ptr<Hold>& hold) {
  const int64_t limit = memory->parts_.values;
  if (limit > 0 && bytes > limit)
    return ApiError{ApiErrorKind::too_large,
                    fmt::format("memory: the answers of this request can take {}, and the memory budget has {} for "
                                "answers; ask for fewer tokens, answers or log-probabilities",
                                format_bytes(bytes), format_bytes(limit)),
                    ""};
  auto taken = std::make_unique<Hold>(memory);
  std::lock_guard lock(memory->mutex_);
  if (limit > 0 && bytes > limit - memory->held_)
    return ApiError{ApiErrorKind::overloaded,
                    fmt::format("memory: the answers of this request can take {}, and those of others hold {} of the "
                                "{} that the memory budget has for answers; try again later",
                                format_bytes(bytes), format_bytes(memory->held_), format_bytes(limit)),
                    ""};
  memory->held_ += taken->bytes_ = bytes;
  hold = std::move(taken);
  return std::nullopt;
}

AnswerMemory::Hold::~Hold() {
  std::lock_guard lock(memory_->mutex_);
  memory_->held_ -= bytes_;
}

int64_t answer_bytes(const GenerationRequest& params, const AnswerFormat& format, int64_t context, bool taken) {
  const Request& request = params.request;
  const int64_t top = request.sampling.logprobs;
  const int64_t prompt_top = std::max(params.prompt_logprobs, params.echo ? top : -1);
  const int64_t answers = std::max({request.n, request.best_of, request.beams});
  const int64_t kept = std::max(format.kept_logprob_bytes, taken && !params.stream ? kTakenLogprobBytes : 0);
  // A format that keeps log-probabilities as JSON keeps its texts so, too.
  int64_t token_bytes = kept > 0 ? 2 * kTextBytes : params.stream ? 0 : kTextBytes;
  if (top >= 0) token_bytes += values_of(top) + (top + 1) * kept + (params.stream ? kEventBytes : 0);
  int64_t bytes = params.stream ? 0 : kReplyBytes;
  for (const AskedPrompt& prompt : params.prompts) {
    const int64_t length = std::ssize(prompt.tokens);
    int64_t longest = std::max<int64_t>(0, context - length);
    if (request.max_tokens >= 0) longest = std::min(longest, request.max_tokens);
    bytes += answers * (kAnswerBytes + longest * token_bytes);
    if (prompt_top >= 0) bytes += length * (values_of(prompt_top) + request.n * (prompt_top + 1) * kept);
    if (!params.stream || params.echo) bytes += request.n * kPromptCopies * std::ssize(prompt.text);
  }
  return bytes;
}

}  // namespace millrace
