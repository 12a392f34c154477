// GenerationRequest: one request for text, independent of the API. The schema's fields fill it in; the service turns it
// into the engine's Requests, one for each prompt.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/constraint.h"
#include "millrace/request.h"
#include "prompt/infill_prompt.h"
#include "prompt/prompt_source.h"
#include "server/generation/fair_worker.h"
#include "server/json.h"
#include "text/tools/reasoning.h"

namespace millrace {

class KeyUse;
class QueuePlace;
struct ServedModel;
struct TextWork;

struct AskedPrompt {
  std::string text;  // used if there are no tokens
  std::vector<TokenId> tokens;
  bool add_special = true;            // put the tokenizer's start token before the text
  std::vector<PromptSource> sources;  // one for each token, for compressors; empty: all are PromptSource::text
  // Rows of the embedding table, in place of text and tokens; null: none.
  std::shared_ptr<const std::vector<float>> rows = nullptr;
};

// Rows that a server accepts.
struct RowLimits {
  bool enabled = false;
  int64_t width = 0;  // width of the model; 0: it is not loaded yet
  int64_t context = 0;
};

// The tools of a request, and how they may be used.
struct RequestedTools {
  enum class Choice { automatic, none, required };
  Json definitions;         // in OpenAI's form, for the chat template; null: none
  std::vector<Tool> tools;  // with schemas for the constraint
  Choice choice = Choice::automatic;
  bool choice_given = false;
  std::string named;     // the tool that must be called; "": any
  bool parallel = true;  // allow more than one call in an answer
  // The names in `tools` that may be called; the prompt still lists all tools.
  std::optional<std::vector<std::string>> allowed;
  std::vector<std::string> custom;  // names of tools that take text
  // Tools of a namespace: the model knows them by `flat`, the answer names both parts.
  struct Namespaced {
    std::string flat, space, name;
  };
  std::vector<Namespaced> namespaced;
  bool old_form = false;  // `functions`: an answer has at most one function_call

  bool any() const { return !tools.empty() && choice != Choice::none; }
};

// How thinking is separated from the answer.
struct AskedReasoning {
  bool split = true;          // returned separately; otherwise as part of the text
  bool shown = true;          // ... and included in the response
  bool in_vllm_name = false;  // in "reasoning" instead of "reasoning_content"
  int64_t budget = -1;        // maximum tokens; -1: no limit
};

class ResponseStore;

// Passages of an index that become documents of the prompt.
struct AskedRetrieval {
  std::string index;  // name of --index
  int64_t k = 4;
  std::string mode = "hybrid";
  std::string tenant;  // name of the caller's key, whose documents are found besides shared ones; "": none
};

struct GenerationRequest {
  std::string model;                    // "": the first model
  std::shared_ptr<ServedModel> served;  // the model with that name
  std::shared_ptr<TextWork> text_work;  // the limits of making the prompts; null: none, or they are made
  std::vector<AskedPrompt> prompts;
  RowLimits row_limits;                // set before the fields are read
  std::vector<std::string> documents;  // before each of the prompts
  std::optional<AskedRetrieval> retrieval;
  Json sources;                     // passages that were found; null: none were asked for
  Json messages;                    // messages of a conversation, in OpenAI's form; null: use prompts
  Json variables = Json::object();  // additional ones for the chat template
  bool add_generation_prompt = true;
  bool continue_last_message = false;  // the answer continues the last message

  std::optional<InfillText> infill;  // set for infill; the prompts are then the text before the middle
  RequestedTools tools;
  AskedReasoning reasoning;
  std::string constraint_field;      // the field that set request.constraint; "": none
  CompiledConstraint compiled;       // held so that it stays in the engine's cache
  bool constrains_thinking = false;  // the constraint also covers thinking, not only the text after it
  // How the answer is parsed; set together with the prompt.
  const ToolDialect* dialect = nullptr;   // null: do not parse calls
  const ReasoningMarks* marks = nullptr;  // null: do not parse thinking
  ReasoningPlace place = ReasoningPlace::begin;
  // Text that begins a tool call, and thereby ends thinking; "": no calls.
  std::string_view call_start() const { return dialect && tools.any() ? dialect->start : ""; }

  std::vector<TokenId> context_tokens;  // tokens of the conversation so far, before those of the messages
  int64_t most_context = 0;             // maximum tokens of prompt and answer; 0: the model's context
  // > 0: keep this many tokens at the prompt's end; -1: the number that leaves room for the answer
  int64_t truncate_prompt = 0;
  int64_t truncated_tokens = 0;          // removed from the beginning of the prompts
  std::vector<std::string> bad_words;    // never generated
  std::string prediction;                // expected text of much of the answer; "": not known
  int64_t prompt_logprobs = -1;          // for the prompt: number of most likely tokens at each position; -1: none
  bool continuous_usage = false;         // usage in every chunk of a stream
  Json kept;                             // data that the API keeps for its response
  std::vector<std::string> dropped;      // parts of the request that were left out, each with the reason
  Json applied;                          // changes by "millrace": {"use": [...]} and by compressors; null: neither
  std::shared_ptr<ResponseStore> store;  // where to store the response; null: not stored

  std::string id;       // id of the response; "": generate one
  int64_t created = 0;  // its time, Unix seconds; 0: now
  // Prompt compressors, NAME:key=value,...; the model's own unless the request chooses. Empty: none.
  std::vector<std::string> prompt_passes;
  bool no_prompt_passes = false;  // the request leaves out the model's own
  int64_t compressed_tokens = 0;  // removed by them

  std::string cache_salt;                                       // "": none
  std::string adapter;                                          // adapter given as the model name; "": none
  std::optional<std::vector<std::pair<int64_t, double>>> lora;  // index and scale of each adapter
  Request request;                                              // without the prompt
  bool seed_given = false;
  bool stream = false;
  bool include_usage = false;               // in streams
  bool echo = false;                        // return the prompt before the answer
  bool return_tokens = false;               // return token ids with the text
  bool keep_tokens = false;                 // collect them for streams too, for the last event
  bool truncated = false;                   // the prompt was truncated, as requested
  bool only_load = false;                   // only load the model; generate nothing
  double max_ttft_seconds = 0;              // reject if the first token is not expected by then; 0: no limit
  double timeout_seconds = 0;               // 0: server default
  WorkShare share;                          // for prompts that are read
  std::shared_ptr<QueuePlace> queue_place;  // taken before they are, then for the first prompt's answer; null: none
  std::shared_ptr<KeyUse> use;              // the key account charged for tokens; null: none
  double waited_seconds = 0;                // for the model to load
  double reading_seconds = 0;               // for its texts to be read
  double compressing_seconds = 0;           // for its prompts to be compressed
  std::optional<double> keep_seconds;       // new idle time before the model is unloaded; negative: forever
};

}  // namespace millrace
