#include "server/api/vllm_fields.h"

#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

Field flag(const char* name, const char* value, const char* help, void (*set)(GenerationRequest&, bool)) {
  Field field{name, kBoolean, value, help};
  field.set = [set](const Json& given, GenerationRequest& ask) -> Wrong {
    set(ask, given.get<bool>());
    return std::nullopt;
  };
  return field;
}

}  // namespace

std::vector<Field> vllm_fields() {
  Field stops{"stop_token_ids", kTokens, "none", "tokens that end the answer, as the model's own end tokens do"};
  stops.most = 256;
  stops.set = [](const Json& value, GenerationRequest& ask) -> Wrong {
    ask.request.stop_tokens = value.get<std::vector<TokenId>>();
    return std::nullopt;
  };
  Field truncate{
      "truncate_prompt_tokens", kInteger, "none",
      "the prompt's last so many tokens are used; -1: as many as leave room for the answer. What was cut is told in "
      "usage.prompt_tokens_details.truncated_tokens and the Millrace-Truncated-Tokens header"};
  truncate.min = -1;
  truncate.max = 2147483647;
  truncate.set = [](const Json& value, GenerationRequest& ask) -> Wrong {
    if (value == 0) return ApiError::bad("truncate_prompt_tokens", "must be at least 1, or -1");
    ask.truncate_prompt = value.get<int64_t>();
    return std::nullopt;
  };
  Field bad_words{"bad_words", kTexts, "none", "texts that are never written"};
  bad_words.most = 256;
  bad_words.set = [](const Json& value, GenerationRequest& ask) -> Wrong {
    ask.bad_words = value.get<std::vector<std::string>>();
    for (const std::string& word : ask.bad_words)
      if (word.empty() || word.size() > 256) return ApiError::bad("bad_words", "each has 1 to 256 bytes");
    return std::nullopt;
  };
  std::vector<Field> out = {
      stops,
      truncate,
      bad_words,
      flag("include_stop_str_in_output", "false", "the text keeps the stop string that ended it",
           [](GenerationRequest& ask, bool value) { ask.request.include_stop = value; }),
      flag("skip_special_tokens", "true", "control tokens are left out of the text",
           [](GenerationRequest& ask, bool value) { ask.request.skip_special = value; }),
      flag("return_token_ids", "false", "the ids of the prompt's and the answer's tokens beside the text",
           [](GenerationRequest& ask, bool value) { ask.return_tokens = value; })};
  Field scores{
      "prompt_logprobs", kInteger, "none",
      "log-probabilities of the prompt's tokens, and of so many of the likeliest beside each; excludes stream"};
  scores.min = 0;
  scores.max = 20;
  scores.set = [](const Json& value, GenerationRequest& ask) -> Wrong {
    ask.prompt_logprobs = value.get<int64_t>();
    return std::nullopt;
  };
  Field id{"request_id", kText, "a new one", "what the answer's id has behind its prefix"};
  id.set = [](const Json& value, GenerationRequest& ask) -> Wrong {
    ask.id = value.get<std::string>();
    if (!Service::is_id(ask.id))
      return ApiError::bad("request_id", "must have 1 to 128 characters, none of them a space or outside ASCII");
    return std::nullopt;
  };
  Field salt{"cache_salt", kText, "none",
             "what is computed of the prompt is shared with requests of the same salt alone; 1 to 1024 bytes"};
  salt.set = [](const Json& value, GenerationRequest& ask) -> Wrong {
    ask.cache_salt = value.get<std::string>();
    if (ask.cache_salt.empty() || ask.cache_salt.size() > 1024)
      return ApiError::bad("cache_salt", "must have 1 to 1024 bytes");
    return std::nullopt;
  };
  out.insert(out.end(), {scores, id, salt});
  return out;
}

}  // namespace millrace
