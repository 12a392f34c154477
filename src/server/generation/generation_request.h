// GenerationRequest: one request for text, whatever API it came by. A schema's fields fill it in; the service turns it
// into the engine's Requests, one for each prompt.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/constraint.h"
#include "millrace/request.h"
#include "run/infill_prompt.h"
#include "server/generation/fair_worker.h"
#include "server/json.h"
#include "text/tools/reasoning.h"

namespace millrace {

class KeyUse;
struct ServedModel;

struct AskedPrompt {
  std::string text;  // unless tokens are given
  std::vector<TokenId> tokens;
  bool add_special = true;  // the tokenizer's start token goes before the text
};

// The tools of a request, and what is wished of them.
struct AskedTools {
  enum class Choice { automatic, none, required };
  Json definitions;         // OpenAI's form, for the chat template; null: there are none
  std::vector<Tool> tools;  // those that may be called
  Choice choice = Choice::automatic;
  bool choice_given = false;
  std::string named;     // the one that must be called; "": any
  bool parallel = true;  // more than one call in an answer
  std::optional<std::vector<std::string>>
      allowed;                      // of `tools`, those that may be called; the prompt names all of them
  std::vector<std::string> custom;  // names of tools that take a text
  bool old_form = false;            // `functions`: an answer has one function_call

  bool any() const { return !tools.empty() && choice != Choice::none; }
};

// How thinking is told from the answer.
struct AskedReasoning {
  bool split = true;          // it comes by itself; otherwise as part of the text
  bool shown = true;          // ... and is sent
  bool in_vllm_name = false;  // "reasoning", not "reasoning_content"
  int64_t budget = -1;        // its tokens at most; -1: as many as it likes
};

class ResponseStore;

struct GenerationRequest {
  std::string model;                    // "": the one that is served
  std::shared_ptr<ServedModel> served;  // the model of that name
  std::vector<AskedPrompt> prompts;
  Json messages;                    // of a chat, in OpenAI's form; null: there are prompts
  Json variables = Json::object();  // further ones for the chat template
  bool add_generation_prompt = true;
  bool continue_last_message = false;  // the answer goes on where the last message ends

  std::optional<InfillText> infill;  // the prompts are what stands before the text that is wanted
  AskedTools tools;
  AskedReasoning reasoning;
  std::string constraint_field;      // that request.constraint came by; "": none did
  CompiledConstraint compiled;       // kept so that the engine finds it
  bool constrains_thinking = false;  // the constraint is for all of the answer, not for what comes behind thinking
  // Set as the prompt is made: how the answer is read.
  const ToolDialect* dialect = nullptr;   // null: no calls are looked for
  const ReasoningMarks* marks = nullptr;  // null: no thinking is looked for
  ReasoningPlace place = ReasoningPlace::begin;

  std::vector<TokenId> context_tokens;  // of a conversation so far, which come before the messages' own
  int64_t most_context = 0;             // tokens of prompt and answer together; 0: as many as the model's context
  int64_t truncate_prompt = 0;   // > 0: the prompt's last so many tokens; -1: as many as leave room for the answer
  int64_t truncated_tokens = 0;  // that were cut from the prompts' beginnings
  std::vector<std::string> bad_words;    // never written
  int64_t prompt_logprobs = -1;          // of the prompt's tokens, and so many of the likeliest beside each; -1: none
  bool continuous_usage = false;         // in every chunk of a stream
  Json kept;                             // what the API's own answer repeats of the request
  std::shared_ptr<ResponseStore> store;  // where the answer is to be kept; null: nowhere

  std::string id;          // that the answer is to have; "": a new one
  std::string cache_salt;  // "": none
  std::string adapter;     // that the request called as if it were a model; "": none
  std::optional<std::vector<std::pair<int64_t, double>>> lora;  // adapters by place, and their scales
  Request request;                                              // all but the prompt
  bool seed_given = false;
  bool stream = false;
  bool include_usage = false;          // in a stream
  bool echo = false;                   // the prompt comes before the answer
  bool return_tokens = false;          // ids beside the text
  bool keep_tokens = false;            // ... kept of a stream too, for its end
  bool truncated = false;              // something of the prompt was left out, as asked for
  bool only_load = false;              // nothing is to be generated: the answer is that the model is there
  double max_ttft_seconds = 0;         // refused when the first token is not to be expected by then; 0: whenever
  double timeout_seconds = 0;          // 0: the server's
  WorkShare share;                     // for what is computed beside the engine
  std::shared_ptr<KeyUse> use;         // where its tokens are charged; null: nowhere
  double waited_seconds = 0;           // for the model to be loaded
  std::optional<double> keep_seconds;  // that the model stays after its last use from now on; negative: for ever
};

}  // namespace millrace
