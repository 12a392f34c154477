#include "server/api/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sampling/schema.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

constexpr double kMaxRequestedTokens = 2147483647;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxPrompts = 128;
constexpr size_t kMaxBytes = size_t{64} << 20;

Wrong set_bias(GenerationRequest& params, std::string_view key, const Json& bias) {
  TokenId token = 0;
  auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), token);
  if (status != std::errc() || end != key.data() + key.size() || token < 0)
    return ApiError::bad("logit_bias", fmt::format("'{}' is not a token id", key));
  if (!bias.is_number()) return ApiError::bad("logit_bias", fmt::format("the bias of token {} is not a number", token));
  params.request.sampling.logit_bias[token] = bias.get<double>();
  return std::nullopt;
}

Field with_set(std::string name, unsigned types, std::string default_value, std::string help,
               std::function<Wrong(const Json&, GenerationRequest&)> set) {
  Field field{std::move(name), types, std::move(default_value), std::move(help)};
  field.set = std::move(set);
  return field;
}

Field bounded(Field field, double min, double max) {
  field.min = min;
  field.max = max;
  return field;
}

}  // namespace

std::vector<Field> sampling_fields(std::initializer_list<std::string_view> without) {
  std::vector<Field> out;
  for (const OptionSpec& spec : sampling_schema()) {
    if (spec.type == OptionSpec::Type::text || spec.name == "seed" || spec.name == "logprobs") continue;
    if (std::ranges::find(without, spec.name) == without.end()) out.push_back(sampling_field(spec.name, spec.name));
  }
  return out;
}

Field model_field() {
  return with_set("model", kJsonText, "the server's first model", "name or alias of the model",
                  [](const Json& value, GenerationRequest& params) -> Wrong {
                    params.model = value.get<std::string>();
                    return std::nullopt;
                  });
}

Field stream_field(bool default_value) {
  return with_set("stream", kJsonBoolean, default_value ? "true" : "false", "send the output as it is generated",
                  [](const Json& value, GenerationRequest& params) -> Wrong {
                    params.stream = value.get<bool>();
                    return std::nullopt;
                  });
}

Field stop_field(const std::string& name) {
  Field field = with_set(name, kJsonText | kJsonTexts, "none",
                         "strings that end the output, which never contains one, nor part of one",
                         [](const Json& value, GenerationRequest& params) -> Wrong {
                           params.request.stop = value.is_string() ? std::vector{value.get<std::string>()}
                                                                   : value.get<std::vector<std::string>>();
                           std::erase(params.request.stop, "");
                           return std::nullopt;
                         });
  field.most = kMaxStops;
  return field;
}

Field seed_field(bool negative_is_random) {
  const std::string help = "sampling seed: the same request with the same seed gives the same output";
  return bounded(with_set("seed", kJsonInteger, "random, returned in the Millrace-Seed header",
                          help + (negative_is_random ? "; -1: random" : ""),
                          [=](const Json& value, GenerationRequest& params) -> Wrong {
                            if (negative_is_random && value.get<double>() < 0) return std::nullopt;
                            params.seed_given = true;
                            params.request.sampling.seed = value.is_number_unsigned()
                                                               ? value.get<uint64_t>()
                                                               : static_cast<uint64_t>(value.get<int64_t>());
                            return std::nullopt;
                          }),
                 -9223372036854775808.0, 18446744073709551615.0);
}

Field max_tokens_field(const std::string& name, const std::string& default_value) {
  return bounded(
      with_set(name, kJsonInteger, default_value, "maximum tokens to generate; -1: until the context is full",
               [](const Json& value, GenerationRequest& params) -> Wrong {
                 params.request.max_tokens = std::max<int64_t>(-1, value.get<int64_t>());
                 return std::nullopt;
               }),
      -2, kMaxRequestedTokens);
}

Field logit_bias_field() {
  Field field =
      with_set("logit_bias", kJsonObject | kJsonList, "none",
               "{\"ID\": BIAS} or [[ID, BIAS]]: added to the logits of tokens; -100 or false practically bans one",
               [](const Json& value, GenerationRequest& params) -> Wrong {
                 if (value.is_object()) {
                   for (const auto& [key, bias] : value.items())
                     if (auto wrong = set_bias(params, key, bias)) return wrong;
                   return std::nullopt;
                 }
                 for (const Json& pair : value) {
                   if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer())
                     return ApiError::bad("logit_bias", "must be an object or an array of [ID, BIAS]");
                   const Json bias = pair[1].is_boolean() && !pair[1].get<bool>() ? Json(-1e6) : pair[1];
                   if (auto wrong = set_bias(params, pair[0].dump(), bias)) return wrong;
                 }
                 return std::nullopt;
               });
  field.most = 4096;
  return field;
}

Field prompt_field(const std::string& name, bool several) {
  const unsigned types = kJsonText | kJsonTokens | (several ? kJsonTexts | kJsonTokenLists : 0u);
  Field field =
      with_set(name, types, "",
               several ? "text or tokens to continue, or a list of either: each is continued separately"
                       : "text or tokens to continue",
               [name](const Json& value, GenerationRequest& params) -> Wrong {
                 const bool list = value.is_array() && !value.empty() && !value[0].is_number();
                 if (value.is_array() && value.empty()) return ApiError::bad(name, "is empty");
                 if (list && value.size() > kMaxPrompts)
                   return ApiError::bad(name, fmt::format("at most {} prompts, got {}", kMaxPrompts, value.size()));
                 for (const Json& one : list ? value : Json::array({value})) {
                   AskedPrompt prompt;
                   if (one.is_string()) {
                     prompt.text = one.get<std::string>();
                   } else {
                     prompt.tokens = one.get<std::vector<TokenId>>();
                     if (prompt.tokens.empty()) return ApiError::bad(name, "a list of tokens is empty");
                   }
                   params.prompts.push_back(std::move(prompt));
                 }
                 return std::nullopt;
               });
  field.most = kMaxBytes;
  return field;
}

Field answers_field() {
  return bounded(
      with_set("n", kJsonInteger, "1",
               "number of outputs for each prompt; they share the prompt's computation and differ in their seed",
               [](const Json& value, GenerationRequest& params) -> Wrong {
                 params.request.n = value.get<int64_t>();
                 return std::nullopt;
               }),
      1, 128);
}

Field usage_in_stream_field() {
  Field options{"stream_options", kJsonObject, "", "needs stream"};
  options.fields = {with_set("include_usage", kJsonBoolean, "false", "send a final chunk with the token counts",
                             [](const Json& value, GenerationRequest& params) -> Wrong {
                               params.include_usage = value.get<bool>();
                               return std::nullopt;
                             }),
                    with_set("continuous_usage_stats", kJsonBoolean, "false",
                             "send the counts so far in every chunk; needs include_usage",
                             [](const Json& value, GenerationRequest& params) -> Wrong {
                               params.continuous_usage = value.get<bool>();
                               return std::nullopt;
                             }),
                    obfuscation_field()};
  return options;
}

namespace {

Field priority_field() {
  return bounded(
      with_set("priority", kJsonInteger, "0", "higher runs first, if the server's scheduling policy uses priorities",
               [](const Json& value, GenerationRequest& params) -> Wrong {
                 params.request.priority = value.get<int64_t>();
                 return std::nullopt;
               }),
      -1e9, 1e9);
}

Field timeout_field(const char* help) {
  return bounded(with_set("timeout", kJsonNumber, "server default", help,
                          [](const Json& value, GenerationRequest& params) -> Wrong {
                            params.timeout_seconds = value.get<double>();
                            return std::nullopt;
                          }),
                 0.001, 1e6);
}

}  // namespace

std::vector<Field> reading_fields() {
  return {priority_field(), timeout_field("seconds after which the request ends with an error")};
}

std::vector<Field> extension_fields() {
  const auto tokens = [](const char* name, const char* help, std::vector<TokenId> SamplingOptions::*list) {
    return with_set(name, kJsonTokens, "none", help, [list](const Json& value, GenerationRequest& params) -> Wrong {
      params.request.sampling.*list = value.get<std::vector<TokenId>>();
      return std::nullopt;
    });
  };
  const auto flag = [](const char* name, const char* value, const char* help, bool Request::*member) {
    return with_set(name, kJsonBoolean, value, help, [member](const Json& given, GenerationRequest& params) -> Wrong {
      params.request.*member = given.get<bool>();
      return std::nullopt;
    });
  };
  return {
      bounded(
          with_set("min_tokens", kJsonInteger, "0", "the model's end tokens are not allowed before this many tokens",
                   [](const Json& value, GenerationRequest& params) -> Wrong {
                     params.request.min_tokens = value.get<int64_t>();
                     return std::nullopt;
                   }),
          0, kMaxRequestedTokens),
      flag("ignore_eos", "false", "continue past the model's end tokens", &Request::ignore_eos),
      flag("cache_prompt", "true", "may reuse cached prompt prefixes, and cache its own", &Request::cache_prompt),
      priority_field(),
      timeout_field("seconds after which generation stops, with the output so far"),
      bounded(with_set("max_ttft", kJsonNumber, "server default",
                       "reject with 429 if the first token is not expected within this many seconds; the "
                       "Millrace-Max-TTFT header does the same",
                       [](const Json& value, GenerationRequest& params) -> Wrong {
                         params.max_ttft_seconds = value.get<double>();
                         return std::nullopt;
                       }),
              0.001, 1e6),
      bounded(with_set("deadline", kJsonNumber, "none",
                       "seconds within which the whole output is needed: the deadline policy schedules by it, and a "
                       "request that cannot meet it is rejected with 429",
                       [](const Json& value, GenerationRequest& params) -> Wrong {
                         params.request.deadline_seconds = value.get<double>();
                         return std::nullopt;
                       }),
              0.001, 1e6),
      tokens("banned_token_ids", "tokens that are never sampled", &SamplingOptions::banned_tokens),
      tokens("allowed_token_ids", "the only tokens that may be sampled", &SamplingOptions::allowed_tokens),
  };
}

Field obfuscation_field() {
  return ignored_field("include_obfuscation", kJsonBoolean,
                       "it permits padding against observers of the traffic, which this server does not add");
}

bool is_false(const Json& value) { return value.is_boolean() && !value.get<bool>(); }
bool is_empty(const Json& value) {
  return (value.is_string() && value.get_ref<const std::string&>().empty()) || (value.is_structured() && value.empty());
}
bool is_no_format(const Json& value) {
  return is_empty(value) || (value.is_object() && value.contains("type") && value["type"] == "text");
}
bool is_no_choice(const Json& value) { return value == "none" || value == "auto"; }
bool is_one(const Json& value) { return value.is_number() && value.get<double>() == 1; }

}  // namespace millrace
