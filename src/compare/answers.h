// AnswerEngines: generates answers with every configuration, through its engine, so that evictors, formats, drafts and
// samplers apply. The bits of an answer do not depend on other questions in the batch. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "compare/answer_prompts.h"
#include "compare/config.h"
#include "compare/suite.h"
#include "program/engine_generator.h"

namespace millrace {

struct AnswerRequest {
  nlohmann::ordered_json messages;  // messages of a conversation; null: the prompt is `text`
  std::string text;
  // Texts at the beginning of the last message; a document context may compute them separately.
  std::vector<std::string> documents;
  int64_t max_tokens = 128;
  std::vector<std::string> stop;
};

struct GeneratedAnswer {
  std::string text;
  std::vector<TokenId> tokens;
  RequestTimings timings;
  int64_t prompt_tokens = 0;       // after prompt compressors
  double compression_seconds = 0;  // duration of the prompt's compression, before the engine received it
  int64_t generated_tokens = 0;    // tokens of the answer; with a program, all that it generated
  double cost = 0;                 // parameters x computed tokens, in billions
  double seconds = 0;              // from its submission; other answers of the same call share the machine
};

// Returns the number of passes of the whole model that an answer took: its steps, and, with the drafter `pass`, one
// pass for each draft. `drafts_with_model`: as in CompareConfig.
int64_t model_passes(const RequestTimings& timings, bool drafts_with_model);

// Returns a conversation with one user message.
nlohmann::ordered_json user_message(const std::string& text);

// Returns the indices of the requests that fit the context of every configuration together with their answers,
// ascending. `longest`: out, tokens of the longest of these, at least 1. Errors: those of templates and tokenizers.
Result<std::vector<size_t>> fitting_requests(std::span<const CompareConfig> configs,
                                             std::span<const AnswerRequest> requests, int64_t& longest);

class AnswerEngines {
 public:
  // `streams`: maximum number of answers at a time. `longest`: maximum tokens of an answer with its prompt.
  AnswerEngines(std::span<const CompareConfig> configs, int64_t streams, int64_t longest)
      : configs_(configs),
        streams_(streams),
        longest_(longest),
        engines_(configs.size()),
        prompts_(configs.size()),
        servers_(configs.size()) {}

  // Returns an answer for each request. Another engine's server answers one request at a time, and only `text` of its
  // answers is set. Errors: those of the engine, cancelled.
  Result<std::vector<GeneratedAnswer>> answer(size_t config, std::span<const AnswerRequest> requests,
                                              const SuiteWanted& wanted);

 private:
  std::span<const CompareConfig> configs_;
  int64_t streams_, longest_;
  Result<std::vector<GeneratedAnswer>> answer_externally(size_t config, std::span<const AnswerRequest> requests,
                                                         const SuiteWanted& wanted);
  Result<std::vector<GeneratedAnswer>> answer_by_program(size_t config, std::span<const AnswerRequest> requests,
                                                         const SuiteWanted& wanted);
  Result<std::vector<ProgramModel>> program_models(size_t config);
  std::map<std::string, std::unique_ptr<Engine>>
      program_engines_;                                   // engines of other models, by configuration and name
  std::vector<std::unique_ptr<Engine>> engines_;          // by configuration; created at the first request
  std::vector<std::unique_ptr<AnswerPrompts>> prompts_;   // by configuration, created with the engine
  std::vector<std::unique_ptr<ExternalServer>> servers_;  // by configuration of another engine
};

// Generates one answer. Errors: those of the engine, cancelled.
Result<GeneratedAnswer> answer_alone(Engine& engine, Request request, const SuiteWanted& wanted);

}  // namespace millrace
