#include "server/api/known_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "sampling/schema.h"
#include "server/api/sampling_fields.h"
#include "server/api/tool_fields.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

// Values of unsupported fields that are accepted because they request nothing.
bool is_never(const Json&) { return false; }
bool is_true(const Json& value) { return value.is_boolean() && value.get<bool>(); }
bool is_zero(const Json& value) { return value.is_number() && value.get<double>() == 0; }
bool is_negative(const Json& value) { return value.is_number() && value.get<double>() < 0; }
bool is_not_above_zero(const Json& value) { return value.is_number() && value.get<double>() <= 0; }
bool is_text_alone(const Json& value) { return value == Json::array({"text"}); }
bool is_standard(const Json& value) { return value == "standard" || value == "default"; }
bool is_global(const Json& value) { return is_empty(value) || value == "global"; }
// Edits of the conversation that keep all of it.
bool keeps_all(const Json& edit) {
  if (!edit.is_object() || !edit.contains("keep")) return false;
  const Json& keep = edit["keep"];
  return keep == "all" || (keep.is_object() && keep.size() == 1 && keep.contains("type") && keep["type"] == "all");
}
bool has_no_edits(const Json& value) {
  if (is_empty(value)) return true;
  if (!value.is_object() || value.size() != 1 || !value.contains("edits")) return false;
  const Json& edits = value["edits"];
  return is_empty(edits) || (edits.is_array() && std::ranges::all_of(edits, keeps_all));
}

using Refused = std::vector<std::pair<const char*, bool (*)(const Json&)>>;

std::vector<Field> refused(const Refused& list) {
  std::vector<Field> out;
  for (const auto& [name, harmless] : list) out.push_back(unsupported_field(name, harmless));
  return out;
}

// `documents` is vLLM's and Hugging Face's, whose template writes them into the prompt. `blocks` are the parts that a
// prompt is assembled from: ignored, they would be missing from the answer.
std::vector<Field> misplaced_documents() {
  std::vector<Field> fields = refused({{"documents", is_empty}, {"blocks", is_empty}});
  for (Field& field : fields) field.help = "millrace.documents has texts that come before the question";
  return fields;
}

// llama-server's and vLLM's fields shared by chat and text completion.
std::vector<Field> engine_fields() {
  std::vector<Field> out = {
      ignored_field("id_slot", kJsonInteger, "there are no slots; common prompt prefixes are shared automatically"),
      ignored_field("n_keep", kJsonInteger, "a full context is never shifted: generation stops"),
      ignored_field("n_discard", kJsonInteger, "a full context is never shifted: generation stops"),
      ignored_field("n_cache_reuse", kJsonInteger, "it changes how fast a prompt is processed, not the output"),
      ignored_field("backend_sampling", kJsonBoolean, "it selects where tokens are sampled, not which"),
      ignored_field("speculative.n_max", kJsonInteger, "it changes how fast the output is generated, not the output"),
      ignored_field("speculative.n_min", kJsonInteger, "it changes how fast the output is generated, not the output"),
      ignored_field("speculative.p_min", kJsonNumber, "it changes how fast the output is generated, not the output")};
  return joined({std::move(out), refused({{"n_indent", is_zero},
                                          {"t_max_predict_ms", is_not_above_zero},
                                          {"t_max_prompt_ms", is_not_above_zero},
                                          {"samplers", is_empty},
                                          {"min_keep", is_zero},
                                          {"penalize_nl", is_false},
                                          {"timings_per_token", is_false},
                                          {"return_progress", is_false},
                                          {"post_sampling_probs", is_false},
                                          {"response_fields", is_empty},
                                          {"adaptive_target", is_negative}})});
}

std::vector<Field> vllm_refused() {
  std::vector<Field> out = {
      ignored_field("guided_decoding_backend", kJsonText, "one compiler serves every grammar"),
      ignored_field("disable_log_stats", kJsonBoolean, "it changes the server's log, not the output")};
  return joined({std::move(out), refused({{"guided_whitespace_pattern", is_empty},
                                          {"logits_processors", is_empty},
                                          {"return_tokens_as_token_ids", is_false},
                                          {"vllm_xargs", is_empty},
                                          {"kv_transfer_params", is_empty},
                                          {"repetition_detection", is_empty},
                                          {"stream_interval", is_one},
                                          {"spaces_between_special_tokens", is_true},
                                          {"detokenize", is_true}})});
}

std::vector<Field> other_token_fields() {
  return refused({{"n_probs", is_zero}, {"return_tokens", is_false}, {"top_n_tokens", is_zero}});
}

}  // namespace

std::vector<Field> openai_account_fields() {
  return {ignored_field("user", kJsonText, "it identifies the client's end user, for the provider's statistics"),
          ignored_field("safety_identifier", kJsonText,
                        "it identifies the client's end user, for the provider's abuse checks"),
          ignored_field("service_tier", kJsonText, "all requests get the same service; `priority` orders them"),
          ignored_field("prompt_cache_key", kJsonText, "common prompt prefixes are shared automatically"),
          ignored_field("prompt_cache_options", kJsonObject, "common prompt prefixes are shared automatically"),
          ignored_field("prompt_cache_retention", kJsonText, "cached prompts stay as long as there is room")};
}

std::vector<Field> llama_sampling_fields() {
  Field breakers{"dry_sequence_breakers", kJsonTexts, "server default",
                 "strings that no repeated sequence crosses, for DRY"};
  breakers.most = 64;
  breakers.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    auto set = set_sampling_option(params.request.sampling, "dry_breakers", value.dump());
    if (!set.ok()) return ApiError::bad("dry_sequence_breakers", set.error().message);
    return std::nullopt;
  };
  return {sampling_field("repeat_penalty", "repetition_penalty"),
          sampling_field("repeat_last_n", "penalty_window"),
          sampling_field("dry_penalty_last_n", "dry_window"),
          sampling_field("dynatemp_range", "dynamic_temperature_range"),
          sampling_field("dynatemp_exponent", "dynamic_temperature_exponent"),
          std::move(breakers)};
}

// The text of a prediction: a string, or parts of type text.
std::optional<ApiError> read_prediction(const Json& value, GenerationRequest& params) {
  if (!value.contains("type")) return ApiError::bad("prediction.type", "is missing");
  const auto content = value.find("content");
  if (content == value.end()) return ApiError::bad("prediction.content", "is required");
  if (content->is_string()) {
    params.prediction = content->get<std::string>();
    return std::nullopt;
  }
  if (!content->is_array()) return ApiError::bad("prediction.content", "must be a string or a list of text parts");
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    const bool text = part.is_object() && part.contains("type") && part["type"] == "text" && part.contains("text") &&
                      part["text"].is_string();
    if (!text)
      return ApiError::bad(fmt::format("prediction.content[{}]", i), "must be {\"type\": \"text\", \"text\": ...}");
    params.prediction += part["text"].get_ref<const std::string&>();
  }
  return std::nullopt;
}

Field prediction_field() {
  Field type{"type", kJsonText, "", "must be given"};
  type.choices = {"content"};
  Field content{"content", kJsonText | kJsonList, "", "the text, or parts of type text"};
  content.required = true;
  Field field = object_field("prediction",
                             "text that the answer is expected to have much of: drafts are taken from it if the server "
                             "was started with a drafter; the answer does not change",
                             {type, content});
  field.default_value.clear();
  field.set = read_prediction;
  return field;
}

std::vector<Field> other_chat_fields() {
  return joined(
      {openai_account_fields(),
       {ignored_field("metadata", kJsonObject,
                      "it is for the provider's list of stored responses; this endpoint does not store responses"),
        ignored_field("store", kJsonBoolean, "this endpoint does not store responses, and fetching one returns 404"),
        verbosity_field("verbosity"),
        ignored_field("web_search_options", kJsonObject,
                      "it permits the provider's web search, which this server does not have"),
        prediction_field(),
        ignored_field("adaptive_decay", kJsonNumber, "it configures adaptive_target, which is rejected")},
       misplaced_documents(),
       engine_fields(),
       refused({{"prompt_embeds", is_empty}}),
       vllm_refused(),
       other_token_fields(),
       refused({{"audio", is_empty},
                {"modalities", is_text_alone},
                {"moderation", is_never},
                {"echo", is_false},
                {"add_special_tokens", is_false},
                {"chat_template", is_empty},
                {"mm_processor_kwargs", is_empty},
                {"media_io_kwargs", is_empty},
                {"parse_tool_calls", is_true},
                {"thinking_forced_open", is_false},
                {"reasoning_control", is_false},
                {"grammar_lazy", is_false},
                {"grammar_triggers", is_empty},
                {"preserved_tokens", is_empty}})});
}

std::vector<Field> other_completion_fields() {
  return joined(
      {{ignored_field("user", kJsonText, "it identifies the client's end user, for the provider's statistics"),
        ignored_field("adaptive_decay", kJsonNumber, "it configures adaptive_target, which is rejected")},
       misplaced_documents(),
       engine_fields(),
       vllm_refused(),
       other_token_fields(),
       refused({{"add_special_tokens", is_true}})});
}

std::vector<Field> other_llama_completion_fields() {
  return joined({{ignored_field("adaptive_decay", kJsonNumber, "it configures adaptive_target, which is rejected")},
                 misplaced_documents(),
                 engine_fields(),
                 refused({{"image_data", is_empty},
                          {"multimodal_data", is_empty},
                          {"n_cmpl", is_one},
                          {"n", is_one},
                          {"grammar_lazy", is_false},
                          {"grammar_triggers", is_empty},
                          {"preserved_tokens", is_empty}})});
}

std::vector<Field> other_response_count_fields() {
  return refused({{"conversation", is_empty}, {"personality", is_empty}});
}

std::vector<Field> other_response_fields() {
  Field options = object_field("stream_options", "stream format", {obfuscation_field()});
  return joined({openai_account_fields(),
                 {ignored_field("max_tool_calls", kJsonInteger,
                                "it limits calls of the provider's own tools, of which there are none"),
                  options},
                 refused({{"background", is_false},
                          {"context_management", has_no_edits},
                          {"conversation", is_empty},
                          {"moderation", is_never},
                          {"prompt", is_empty}})});
}

std::vector<Field> other_message_count_fields() {
  return joined({{ignored_field("cache_control", kJsonObject, "common prompt prefixes are shared automatically")},
                 refused({{"mcp_servers", is_empty},
                          {"context_management", has_no_edits},
                          {"speed", is_standard},
                          {"thread", is_empty}})});
}

std::vector<Field> other_message_fields() {
  return joined(
      {other_message_count_fields(),
       {ignored_field("metadata", kJsonObject, "it identifies the client's end user, for the provider's abuse checks"),
        ignored_field("service_tier", kJsonText, "all requests get the same service"),
        ignored_field("betas", kJsonTexts, "features are enabled by their fields"),
        ignored_field("anthropic_version", kJsonText, "this API has one version"),
        ignored_field("user_profile_id", kJsonText,
                      "it identifies the client's end user, for the provider's statistics")},
       refused({{"container", is_empty}, {"inference_geo", is_global}})});
}

std::vector<Field> other_ollama_options() {
  std::vector<Field> out;
  for (const char* name : {"numa", "low_vram", "f16_kv", "use_mmap", "use_mlock"})
    out.push_back(ignored_field(name, kJsonBoolean, "the server decides how the model is loaded"));
  for (const char* name : {"num_batch", "num_gpu", "main_gpu", "num_thread"})
    out.push_back(ignored_field(name, kJsonInteger, "the server decides what the model runs on"));
  out.push_back(ignored_field("num_keep", kJsonInteger, "a full context is never shifted: generation stops"));
  return joined({std::move(out), refused({{"logits_all", is_false},
                                          {"vocab_only", is_false},
                                          {"embedding_only", is_false},
                                          {"penalize_newline", is_true},
                                          {"tfs_z", is_one},
                                          {"rope_frequency_base", is_zero},
                                          {"rope_frequency_scale", is_zero}})});
}

std::vector<Field> other_ollama_fields(bool generate) {
  std::vector<Field> out = {
      ignored_field("shift", kJsonBoolean, "a full context is never shifted: generation stops, and says so")};
  out = joined({std::move(out), refused({{"_debug_render_only", is_false}})});
  if (generate)
    out = joined({std::move(out), refused({{"images", is_empty},
                                           {"template", is_empty},
                                           {"width", is_zero},
                                           {"height", is_zero},
                                           {"steps", is_zero}})});
  return out;
}

std::vector<Field> other_embedding_fields() {
  return joined(
      {{ignored_field("user", kJsonText, "it identifies the client's end user, for the provider's statistics")},
       refused({{"truncate_prompt_tokens", is_never},
                {"add_special_tokens", is_true},
                {"normalize", is_true},
                {"embed_dtype", [](const Json& value) { return value == "float32"; }},
                {"endianness", [](const Json& value) { return value == "native" || value == "little"; }},
                {"messages", is_empty}})});
}

}  // namespace millrace
