// AnswerEngines: generated answers of every configuration, through its engine, so that evictors, formats, drafts and
// samplers apply. An answer has the same bits for any other questions in the batch. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "compare/config.h"
#include "compare/suite.h"

namespace millrace {

struct AnswerRequest {
  nlohmann::ordered_json messages;  // messages of a conversation; null: `text` is continued
  std::string text;
  std::vector<std::string> documents;  // texts that the last message begins with; a context may compute them separately
  int64_t max_tokens = 128;
  std::vector<std::string> stop;
};

struct GeneratedAnswer {
  std::string text;
  std::vector<TokenId> tokens;
  RequestTimings timings;
};

// Passes of the whole model that an answer took: its steps, and with the drafter `pass`, which drafts with the whole
// model, one pass for each draft. `drafts_with_model`: as in CompareConfig.
int64_t model_passes(const RequestTimings& timings, bool drafts_with_model);

// A conversation that consists of this message of the user.
nlohmann::ordered_json user_message(const std::string& text);

// Returns which requests fit the context of every configuration with their answers, in order. `longest`: out, the
// tokens of the longest of them, at least 1. Errors: those of templates and tokenizers.
Result<std::vector<size_t>> fitting_requests(std::span<const CompareConfig> configs,
                                             std::span<const AnswerRequest> requests, int64_t& longest);

class AnswerEngines {
 public:
  // Up to `streams` answers at a time, of at most `longest` tokens with their prompts.
  AnswerEngines(std::span<const CompareConfig> configs, int64_t streams, int64_t longest)
      : configs_(configs), streams_(streams), longest_(longest), engines_(configs.size()), servers_(configs.size()) {}

  // Another engine's server answers one after the other, with text alone. Errors: of the engine, cancelled.
  Result<std::vector<GeneratedAnswer>> answer(size_t config, std::span<const AnswerRequest> requests,
                                              const SuiteWanted& wanted);

 private:
  std::span<const CompareConfig> configs_;
  int64_t streams_, longest_;
  Result<std::vector<GeneratedAnswer>> answer_externally(size_t config, std::span<const AnswerRequest> requests,
                                                         const SuiteWanted& wanted);
  std::vector<std::unique_ptr<Engine>> engines_;          // created when first asked
  std::vector<std::unique_ptr<ExternalServer>> servers_;  // servers of other engines
};

// One answer. Errors: of the engine, cancelled.
Result<GeneratedAnswer> answer_alone(Engine& engine, Request request, const SuiteWanted& wanted);

}  // namespace millrace
