// The output of `millrace run` in addition to the text of its answers.
#pragma once

#include <vector>

#include "prompt/prompt_report.h"
#include "retrieve/document_index.h"
#include "run_flags.h"

namespace millrace {

struct Speed {
  double prompt_per_second = 0, generated_per_second = 0, gb_per_second = 0;
};

Speed measure(const RequestTimings& t, const LanguageModel& model);

// Prints one JSON object. The first answer's fields are in the object itself; with several answers, all are also in
// "answers".
void print_json(const std::vector<TokenId>& prompt, const std::vector<AnswerText>& answers, const RunFlags& flags,
                const TokenEvent& last, const Speed& speed, const EngineStats& stats,
                const std::vector<AppliedTechnique>& applied, const std::vector<PromptEffect>& compressed,
                const std::vector<SearchHit>& sources);

void print_timings(const TokenEvent& last, const Speed& speed);     // on stderr
void print_key_stream(const KeyStreamStats& keys, int64_t tokens);  // on stderr; tokens: of prompt and answer
void print_store(const KvStoreStats& store);                        // on stderr

}  // namespace millrace
