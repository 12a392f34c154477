#include "server/api/vllm_fields.h"

#include "server/service.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

Field flag(const char* name, const char* value, const char* help, void (*set)(GenerationRequest&, bool)) {
  Field field{name, kJsonBoolean, value, help};
  field.set = [set](const Json& given, GenerationRequest& params) -> Wrong {
    set(params, given.get<bool>());
    return std::nullopt;
  };
  return field;
}

}  // namespace

std::vector<Field> vllm_fields() {
  Field stops{"stop_token_ids", kJsonTokens, "none", "tokens that end the output, like the model's own end tokens"};
  stops.most = 256;
  stops.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.request.stop_tokens = value.get<std::vector<TokenId>>();
    return std::nullopt;
  };
  Field truncate{"truncate_prompt_tokens", kJsonInteger, "none",
                 "use only this many tokens from the end of the prompt; -1: as many as leave room for the output. The "
                 "number of tokens removed is returned in usage.prompt_tokens_details.truncated_tokens and the "
                 "Millrace-Truncated-Tokens header"};
  truncate.min = -1;
  truncate.max = 2147483647;
  truncate.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (value == 0) return ApiError::bad("truncate_prompt_tokens", "must be at least 1, or -1");
    params.truncate_prompt = value.get<int64_t>();
    return std::nullopt;
  };
  Field bad_words{"bad_words", kJsonTexts, "none", "strings that are never generated"};
  bad_words.most = 256;
  bad_words.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.bad_words = value.get<std::vector<std::string>>();
    for (const std::string& word : params.bad_words)
      if (word.empty() || word.size() > 256) return ApiError::bad("bad_words", "each must have 1 to 256 bytes");
    return std::nullopt;
  };
  std::vector<Field> out = {
      stops,
      truncate,
      bad_words,
      flag("include_stop_str_in_output", "false", "the output includes the stop string that ended it",
           [](GenerationRequest& params, bool value) { params.request.include_stop = value; }),
      flag("skip_special_tokens", "true", "control tokens are left out of the text",
           [](GenerationRequest& params, bool value) { params.request.skip_special = value; }),
      flag("return_token_ids", "false", "return the token ids of the prompt and the output with the text",
           [](GenerationRequest& params, bool value) { params.return_tokens = value; })};
  Field scores{"prompt_logprobs", kJsonInteger, "none",
               "return log-probabilities of the prompt's tokens, and of this many most likely tokens at each position; "
               "cannot be combined with stream"};
  scores.min = 0;
  scores.max = 20;
  scores.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.prompt_logprobs = value.get<int64_t>();
    return std::nullopt;
  };
  Field id{"request_id", kJsonText, "generated", "the id of the response, after its prefix"};
  id.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.id = value.get<std::string>();
    if (!Service::is_id(params.id))
      return ApiError::bad("request_id", "must have 1 to 128 ASCII characters, without spaces");
    return std::nullopt;
  };
  Field salt{"cache_salt", kJsonText, "none",
             "the prompt's cache entries are shared only with requests of the same salt; 1 to 1024 bytes"};
  salt.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    params.cache_salt = value.get<std::string>();
    if (params.cache_salt.empty() || params.cache_salt.size() > 1024)
      return ApiError::bad("cache_salt", "must have 1 to 1024 bytes");
    return std::nullopt;
  };
  out.insert(out.end(), {scores, id, salt});
  return out;
}

}  // namespace millrace
