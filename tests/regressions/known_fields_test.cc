// Fields of the APIs that this server does not support were silently ignored (Anthropic's output_config, Ollama's
// logprobs, llama-server's timings_per_token ...), and others were answered with 501, which every SDK retries three
// times. The tests checked the fields in the tables; none compared the tables with the APIs, whose own lists are here.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "server/api/api.h"
#include "server/live_server.h"
#include "test_paths.h"

namespace millrace {
namespace {

using Names = std::vector<std::string>;

Names names(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

Names both(Names left, const Names& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// From the official clients and the servers' own documents, August 2026. A dot separates an object from its member.
const std::string kLlamaSampling =
    "temperature dynatemp_range dynatemp_exponent top_k top_p min_p typical_p top_n_sigma xtc_probability "
    "xtc_threshold repeat_last_n repeat_penalty "
    "presence_penalty frequency_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n "
    "dry_sequence_breakers mirostat mirostat_tau mirostat_eta "
    "grammar json_schema seed ignore_eos logit_bias n_probs min_keep t_max_predict_ms id_slot cache_prompt "
    "n_cache_reuse return_tokens samplers timings_per_token "
    "return_progress post_sampling_probs response_fields lora n_predict n_indent n_keep n_discard stream stop "
    "backend_sampling";
const std::string kVllm =
    "top_k min_p repetition_penalty stop_token_ids ignore_eos min_tokens include_stop_str_in_output "
    "skip_special_tokens prompt_logprobs return_token_ids priority request_id "
    "cache_salt truncate_prompt_tokens allowed_token_ids bad_words use_beam_search length_penalty structured_outputs "
    "guided_json guided_regex guided_choice guided_grammar "
    "guided_decoding_backend guided_whitespace_pattern kv_transfer_params repetition_detection stream_interval "
    "logits_processors return_tokens_as_token_ids vllm_xargs "
    "spaces_between_special_tokens add_special_tokens echo";
const std::string kOllama =
    "model stream format options keep_alive think truncate shift logprobs top_logprobs options.num_ctx "
    "options.num_batch options.num_gpu options.main_gpu options.num_thread "
    "options.numa options.low_vram options.f16_kv options.logits_all options.vocab_only options.use_mmap "
    "options.use_mlock options.embedding_only options.num_keep "
    "options.seed options.num_predict options.top_k options.top_p options.min_p options.tfs_z options.typical_p "
    "options.repeat_last_n options.temperature "
    "options.repeat_penalty options.presence_penalty options.frequency_penalty options.mirostat options.mirostat_tau "
    "options.mirostat_eta options.penalize_newline options.stop";
const std::string kResponsesCount =
    "input instructions model parallel_tool_calls previous_response_id reasoning reasoning.effort reasoning.summary "
    "text text.format text.verbosity tool_choice tools "
    "truncation conversation";
const std::string kMessagesCount =
    "model messages system thinking thinking.budget_tokens thinking.display tool_choice tools cache_control "
    "context_management mcp_servers thread output_config "
    "output_config.format output_config.effort output_config.task_budget output_format speed";

std::vector<std::pair<std::string, Names>> known_fields() {
  const Names chat = names(
      "messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
      "max_tokens metadata modalities moderation n parallel_tool_calls "
      "prediction presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort "
      "response_format safety_identifier seed service_tier stop store "
      "stream stream_options stream_options.include_usage stream_options.include_obfuscation temperature tool_choice "
      "tools top_logprobs top_p user verbosity web_search_options "
      "chat_template chat_template_kwargs add_generation_prompt continue_final_message documents thinking_token_budget "
      "mm_processor_kwargs reasoning_format reasoning_control");
  const Names text = names(
      "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream "
      "stream_options suffix temperature top_p user");
  const Names response =
      both(names(kResponsesCount), names("background context_management include max_output_tokens max_tool_calls "
                                         "metadata moderation prompt prompt_cache_key prompt_cache_options "
                                         "prompt_cache_retention safety_identifier service_tier store stream "
                                         "stream_options stream_options.include_obfuscation temperature "
                                         "top_logprobs top_p user"));
  const Names message = both(names(kMessagesCount), names("max_tokens container inference_geo metadata service_tier "
                                                          "stop_sequences stream temperature top_k top_p betas"));
  return {
      {"/v1/chat/completions", both(both(chat, names(kVllm)), names(kLlamaSampling))},
      {"/v1/completions", both(both(text, names(kVllm)), names(kLlamaSampling))},
      {"/v1/responses", response},
      {"/v1/responses/input_tokens", names(kResponsesCount + " personality")},
      {"/v1/embeddings",
       names(
           "input model dimensions encoding_format user truncate_prompt_tokens add_special_tokens normalize priority")},
      {"/v1/messages", message},
      {"/v1/messages/count_tokens", names(kMessagesCount)},
      {"/api/chat", both(names(kOllama), names("messages tools"))},
      {"/api/generate",
       both(names(kOllama), names("prompt suffix images system template raw context width height steps"))},
      {"/api/embed", names("model input truncate dimensions keep_alive options")},
      {"/api/embeddings", names("model prompt keep_alive options")},
      {"/api/show", names("model name verbose")},
      {"/completion", both(names(kLlamaSampling), names("prompt image_data multimodal_data n_cmpl"))}};
}

const Endpoint* posted(const std::string& path) {
  std::string rest;
  bool wrong_method = false;
  return find_endpoint("POST", path, &rest, &wrong_method);
}

const Field* find_field(const std::vector<Field>& fields, const std::string& name) {
  for (const Field& field : fields)
    if (field.name == name) return &field;
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return nullptr;
  const Field* outer = find_field(fields, name.substr(0, dot));
  return outer ? find_field(outer->fields, name.substr(dot + 1)) : nullptr;
}

TEST(KnownFields, EveryFieldOfAnApiIsInItsTable) {
  for (const auto& [path, fields] : known_fields()) {
    const Endpoint* endpoint = posted(path);
    ASSERT_TRUE(endpoint) << path;
    for (const std::string& name : fields)
      EXPECT_TRUE(find_field(endpoint->fields, name)) << path << " knows nothing of " << name;
  }
}

TEST(KnownFields, AreListedOnce) {
  for (const Endpoint& endpoint : endpoints()) {
    std::set<std::string> seen;
    for (const Field& field : endpoint.fields)
      EXPECT_TRUE(seen.insert(field.name).second) << endpoint.path << " has " << field.name << " twice";
  }
}

// A field without effect says why that does no harm, and a field with an effect is read somewhere.
void check_effects(const Endpoint& endpoint, const std::vector<Field>& fields, const std::string& sources) {
  for (const Field& field : fields) {
    check_effects(endpoint, field.fields, sources);
    if (field.harmless || field.set || !field.fields.empty()) continue;
    if (field.help.find("ignored: ") != std::string::npos) {
      EXPECT_GT(field.help.size(), std::string("ignored: ").size() + 10)
          << endpoint.path << " " << field.name << " does not say why";
      continue;
    }
    const std::string quoted = "\"" + field.name + "\"";
    size_t uses = 0;
    for (size_t at = 0; (at = sources.find(quoted, at)) != std::string::npos; at += quoted.size()) ++uses;
    EXPECT_GE(uses, 2u) << endpoint.path << " declares " << field.name << ", and nothing reads it";
  }
}

TEST(KnownFields, TakeEffectOrSayWhyNot) {
  std::ostringstream sources;
  for (const char* folder : {"src/server/api", "src/server/measure"})
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(MILLRACE_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".cc") sources << std::ifstream(entry.path()).rdbuf();
  for (const Endpoint& endpoint : endpoints()) check_effects(endpoint, endpoint.fields, sources.str());
}

// The message in the "error" of any API's format.
std::string message_of(const Response& answer) {
  const Json json = answer.json();
  if (!json.is_object() || !json.contains("error")) return answer.body;
  const Json& error = json["error"];
  return error.is_string() ? error.get<std::string>() : error.value("message", "");
}

Json least_body(const Endpoint& endpoint) {
  Json body = Json::object();
  for (const Field& field : endpoint.fields) {
    if (!field.required) continue;
    if (field.name == "messages")
      body[field.name] = {{{"role", "user"}, {"content", "One day"}}};
    else if (field.types & kJsonText)
      body[field.name] = field.choices.empty() ? "One day" : field.choices[0];
    else
      body[field.name] = 1;
  }
  return body;
}

TEST(KnownFields, UnsupportedFieldsGetA400ThatNamesThem) {
  LiveServer live;
  const Json nonsense = {{"a", {1, 2}}};
  int checked = 0;
  for (const auto& [path, fields] : known_fields()) {
    const Endpoint& endpoint = *posted(path);
    for (const std::string& name : fields) {
      const Field* field = find_field(endpoint.fields, name);
      if (!field || !field->harmless) continue;
      Json body = least_body(endpoint);
      const size_t dot = name.find('.');
      const bool inner = dot != std::string::npos && !find_field({*field}, name);
      if (inner)
        body[name.substr(0, dot)][name.substr(dot + 1)] = nonsense;
      else
        body[name] = nonsense;
      const Response answer = post(live.port(), path, body.dump());
      EXPECT_EQ(answer.status, 400) << path << " " << body << answer.body;
      EXPECT_TRUE(message_of(answer).starts_with(name + ": ")) << path << " " << body << answer.body;
      ++checked;
    }
  }
  EXPECT_GT(checked, 60);
}

TEST(KnownFields, NoRequestGets501) {
  LiveServer live;
  const std::string chat = "/v1/chat/completions", image = R"({"type": "image_url", "image_url": {"url": "x"}})",
                    user = R"("messages": [{"role": "user", "content": "a"}])";
  const std::pair<std::string, std::string> requests[] = {
      {chat, R"({"messages": [{"role": "user", "content": [)" + image + "]}]}"},
      {chat, "{" + user + R"(, "tools": [{"type": "web_search"}]})"},
      {chat, "{" + user + R"(, "audio": {"voice": "a"}})"},
      {chat, "{" + user + R"(, "use_beam_search": true, "n": 2, "stop": "b"})"},
      {chat, "{" + user + R"(, "guided_regex": "(?=a)b"})"},
      {"/v1/completions", R"({"prompt": "a", "suffix": "b"})"},
      {"/v1/responses", R"({"input": [{"type": "item_reference", "id": "x"}]})"},
      {"/v1/responses", R"({"input": "a", "background": true})"},
      {"/v1/responses",
       R"({"input": "a", "tools": [{"type": "file_search"}], "tool_choice": {"type": "file_search"}})"},
      {"/v1/messages", R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "document"}]}]})"},
      {"/api/chat", R"({"messages": [{"role": "user", "content": "a", "images": ["AA=="]}]})"},
      {"/api/generate", R"({"prompt": "a", "suffix": "b"})"},
      {"/infill", R"({"input_prefix": "a", "input_suffix": "b"})"},
      {"/rerank", R"({"query": "a", "documents": ["b"]})"},
      {"/embedding", R"({"content": "a", "embd_normalize": 1})"},
  };
  for (const auto& [path, body] : requests) {
    const Response answer = post(live.port(), path, body);
    EXPECT_EQ(answer.status, 400) << path << " " << body << answer.body;
  }
}

}  // namespace
}  // namespace millrace
