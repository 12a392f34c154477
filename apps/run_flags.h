// The flags of `millrace run`, and one answer while it arrives.
#pragma once

#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "constraint_flags.h"
#include "model_flags.h"
#include "model_words.h"
#include "prompt_flags.h"

namespace millrace {

struct RunFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  PromptFlags compression;
  ModelWords words;
  std::string prompt, file, system, kv_load, kv_save;
  std::vector<std::string> documents;
  std::string retrieve, retrieve_mode = "hybrid", retrieve_tenant;  // folder of an index; "": none
  int64_t retrieved = 4;                                            // passages
  std::vector<TokenId> prompt_tokens;
  int64_t max_tokens = 256;  // the default for a text to continue: an answer to a message ends by itself
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  bool max_tokens_given = false, ignore_eos = false, json = false, no_special = false, no_display_prompt = false;
  int64_t answers = 1, best_of = 0, beams = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::no;
};

// One answer being collected.
struct AnswerText {
  std::vector<TokenId> tokens;
  std::string text;
  nlohmann::ordered_json logprobs = nlohmann::ordered_json::array();
  TokenEvent last;
};

}  // namespace millrace
