// Ask: one request for text, whatever API it came by. A schema's fields fill it in; the service turns it into the
// engine's Requests, one for each prompt.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/infill_prompt.h"
#include "millrace/request.h"
#include "server/json.h"

namespace millrace {

class KeyUse;
struct ServedModel;

struct AskedPrompt {
  std::string text;             // unless tokens are given
  std::vector<TokenId> tokens;
  bool add_special = true;      // the tokenizer's start token goes before the text
};

struct Ask {
  std::string model;            // "": the one that is served
  std::shared_ptr<ServedModel> served;  // the model of that name
  std::vector<AskedPrompt> prompts;
  Json messages;                // of a chat, in OpenAI's form; null: there are prompts
  Json variables = Json::object();      // further ones for the chat template
  bool add_generation_prompt = true;
  bool continue_last_message = false;   // the answer goes on where the last message ends

  std::optional<InfillText> infill;     // the prompts are what stands before the text that is wanted

  Request request;              // all but the prompt
  bool seed_given = false;
  bool stream = false;
  bool include_usage = false;   // in a stream
  bool echo = false;            // the prompt comes before the answer
  bool return_tokens = false;   // ids beside the text
  bool truncated = false;       // something of the prompt was left out, as asked for
  bool only_load = false;       // nothing is to be generated: the answer is that the model is there
  double max_ttft_seconds = 0;  // refused when the first token is not to be expected by then; 0: whenever
  double timeout_seconds = 0;   // 0: the server's
  std::shared_ptr<KeyUse> use;  // where its tokens are charged; null: nowhere
  double waited_seconds = 0;    // for the model to be loaded
  std::optional<double> keep_seconds;   // that the model stays after its last use from now on; negative: for ever
};

}  // namespace millrace
