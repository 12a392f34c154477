// Embeddings in the formats of OpenAI, llama-server and Ollama. The embedding worker replies on the exchange.
#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>

#include "server/api/base64.h"
#include "server/api/known_fields.h"
#include "server/api/models.h"
#include "server/api/sampling_fields.h"
#include "server/api/text_vectors.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using Vectors = EmbeddedTexts;

// One request, as read from its body.
struct EmbeddingRequest : TextTokens {
  Pooling pooling = Pooling::last;
  bool normalized = true;
  int64_t dimensions = 0;  // 0: all
  bool base64 = false;
  std::string model;
  Clock::time_point began = Clock::now();
};

using Write = std::function<Json(const EmbeddingRequest&, const Vectors&)>;

// A float as the shortest decimal that parses back to the same value.
Json number_json(float value) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double exact = 0;
  std::from_chars(text, end, exact);
  return exact;
}

Json vector_json(std::span<const float> values, bool base64) {
  if (base64) {
    std::string bytes;
    bytes.reserve(values.size() * 4);
    for (float value : values) {
      const auto bits = std::bit_cast<uint32_t>(value);
      for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(bits >> shift));  // little-endian
    }
    return base64_text(bytes);
  }
  Json out = Json::array();
  for (float value : values) out.push_back(number_json(value));
  return out;
}

Wrong read_dimensions(const ServedModel& served, const Json& body, const char* field, EmbeddingRequest& request) {
  if (!body.contains(field)) return std::nullopt;
  request.dimensions = body[field].get<int64_t>();
  const int64_t width = served.embeddings->width(request.pooling);
  if (request.dimensions <= width) return std::nullopt;
  return ApiError::bad(field, fmt::format("the model's vectors have {} dimensions, got {}", width, request.dimensions));
}

// Truncates each vector to the requested dimensions, then normalizes it to a length of 1.
void finish(const EmbeddingRequest& request, size_t width, Vectors& vectors) {
  const auto size = request.dimensions > 0 ? static_cast<size_t>(request.dimensions) : width;
  for (std::vector<float>& values : vectors) {
    std::vector<float> out;
    for (size_t at = 0; at < values.size(); at += width) {
      std::vector<float> row(values.begin() + static_cast<ptrdiff_t>(at),
                             values.begin() + static_cast<ptrdiff_t>(at + size));
      if (request.normalized) normalize(row);
      out.insert(out.end(), row.begin(), row.end());
    }
    values = std::move(out);
  }
}

Wrong submit(Call& call, const Exchange& exchange, const Dialect& dialect, EmbeddingRequest request, Write write) {
  request.model = call.served().name();
  const Pooling pooling = request.pooling;
  const auto shared = std::make_shared<EmbeddingRequest>(std::move(request));
  return embed_texts(call, exchange, dialect, std::move(shared->texts), shared->pooling, shared->prompt_tokens,
                     [shared, write = std::move(write),
                      width = static_cast<size_t>(call.served().embeddings->width(pooling))](Vectors& vectors) {
                       finish(*shared, width, vectors);
                       return write(*shared, vectors);
                     });
}

Json usage_json(const EmbeddingRequest& request) {
  return {{"prompt_tokens", request.prompt_tokens}, {"total_tokens", request.prompt_tokens}};
}

// --- OpenAI ---

Json openai_json(const EmbeddingRequest& request, const Vectors& vectors) {
  Json data = Json::array();
  for (size_t i = 0; i < vectors.size(); ++i)
    data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", vector_json(vectors[i], request.base64)}});
  return {{"object", "list"}, {"data", std::move(data)}, {"model", request.model}, {"usage", usage_json(request)}};
}

// The request's prompt_name, or the model's default.
Wrong read_task(Call& call, EmbeddingRequest& request) {
  std::optional<std::string> task;
  if (call.body.contains("prompt_name")) task = call.body["prompt_name"].get<std::string>();
  return read_prefix(call.served(), "prompt_name", task, request);
}

// Adapters of tasks, as in the folder of jina-embeddings-v3, would change the vectors.
Wrong check_adapter_task(Call& call) {
  if (!call.body.contains("task")) return std::nullopt;
  const auto& config = *call.served().model->parts().files->config;
  const auto tasks = config.find("lora_adaptations");
  if (tasks == config.end()) return std::nullopt;
  return ApiError::unsupported("task",
                               fmt::format("the adapters of this model's tasks ({}) are not applied; omit it, or "
                                           "serve a file of millrace convert --task",
                                           tasks->dump()));
}

Wrong embed_openai(Call& call, const Exchange& exchange) {
  EmbeddingRequest request;
  if (auto wrong = check_adapter_task(call)) return wrong;
  if (auto wrong = read_task(call, request)) return wrong;
  if (auto wrong = read_pooling(call.served(), call.body, &request.pooling)) return wrong;
  if (request.pooling == Pooling::none)
    return ApiError::bad("pooling",
                         "'none' gives a vector for each token, which this API cannot return; use /embedding");
  if (auto wrong = read_dimensions(call.served(), call.body, "dimensions", request)) return wrong;
  if (auto wrong = add_texts(call.served(), "input", call.body["input"], false, request)) return wrong;
  request.base64 = call.body.value("encoding_format", "float") == "base64";
  return submit(call, exchange, kOpenAi, std::move(request), openai_json);
}

// --- llama-server ---

// Always a list of vectors for each text, so that the format is the same without pooling.
Json llama_json(const EmbeddingRequest& request, const Vectors& vectors, size_t size) {
  Json out = Json::array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    Json rows = Json::array();
    for (size_t at = 0; at < vectors[i].size(); at += size)
      rows.push_back(vector_json(std::span(vectors[i]).subspan(at, size), request.base64));
    out.push_back({{"index", i}, {"embedding", std::move(rows)}});
  }
  return out;
}

Wrong embed_llama(Call& call, const Exchange& exchange) {
  EmbeddingRequest request;
  const char* name = call.body.contains("content") ? "content" : "input";
  if (!call.body.contains(name)) return ApiError::bad("content", "is missing");
  if (auto wrong = read_task(call, request)) return wrong;
  if (auto wrong = read_pooling(call.served(), call.body, &request.pooling)) return wrong;
  if (auto wrong = add_texts(call.served(), name, call.body[name], false, request)) return wrong;
  request.normalized = call.body.value("embd_normalize", 2) == 2;
  request.base64 = call.body.value("encoding_format", "float") == "base64";
  const auto size = static_cast<size_t>(call.served().embeddings->width(request.pooling));
  return submit(
      call, exchange, kLlamaServer, std::move(request),
      [size](const EmbeddingRequest& done, const Vectors& vectors) { return llama_json(done, vectors, size); });
}

// --- Ollama ---

Json ollama_json(const EmbeddingRequest& request, const Vectors& vectors) {
  Json list = Json::array();
  for (const auto& vector : vectors) list.push_back(vector_json(vector, false));
  const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - request.began).count();
  Json out = {{"model", request.model},
              {"embeddings", std::move(list)},
              {"total_duration", elapsed},
              {"load_duration", 0},
              {"prompt_eval_count", request.prompt_tokens}};
  if (!request.truncated.empty()) out["truncated"] = request.truncated;
  return out;
}

Json old_ollama_json(const EmbeddingRequest&, const Vectors& vectors) {
  return {{"embedding", vectors.empty() ? Json::array() : vector_json(vectors.front(), false)}};
}

Wrong read_ollama(Call& call, EmbeddingRequest& request) {
  if (auto wrong = read_prefix(call.served(), "model", std::nullopt, request)) return wrong;
  if (auto wrong = read_pooling(call.served(), call.body, &request.pooling)) return wrong;
  if (request.pooling == Pooling::none) request.pooling = Pooling::last;
  return read_dimensions(call.served(), call.body, "dimensions", request);
}

Wrong embed_ollama(Call& call, const Exchange& exchange) {
  EmbeddingRequest request;
  if (auto wrong = read_ollama(call, request)) return wrong;
  const Json& input = call.body["input"];
  if (input.is_array() && input.empty()) {  // only loads the model, which is already done
    request.model = call.served().name();
    HttpReply reply = json_reply(ollama_json(request, {}));
    reply.headers = call.service.headers(call.request);
    exchange.reply(std::move(reply));
    return std::nullopt;
  }
  if (auto wrong = add_texts(call.served(), "input", input, call.body.value("truncate", true), request)) return wrong;
  return submit(call, exchange, kOllama, std::move(request), ollama_json);
}

Wrong embed_old_ollama(Call& call, const Exchange& exchange) {
  EmbeddingRequest request;
  if (auto wrong = read_ollama(call, request)) return wrong;
  request.normalized = false;  // this endpoint never normalizes
  if (auto wrong = add_text(call.served(), "prompt", call.body["prompt"], true, request)) return wrong;
  return submit(call, exchange, kOllama, std::move(request), old_ollama_json);
}

// --- Cohere ---

// Returns the task that sentence-transformers' files name for Cohere's `input_type`.
std::optional<std::string> task_of(const std::string& input_type) {
  if (input_type == "search_query") return "query";
  if (input_type == "search_document") return "document";
  return input_type.empty() ? std::nullopt : std::optional(input_type);
}

Json cohere_json(const EmbeddingRequest& request, const Vectors& vectors, const std::string& id, const Json& texts) {
  Json list = Json::array();
  for (const auto& vector : vectors) list.push_back(vector_json(vector, request.base64));
  return {{"id", id},
          {"embeddings", {{request.base64 ? "base64" : "float", std::move(list)}}},
          {"texts", texts},
          {"meta", {{"api_version", {{"version", "2"}}}, {"billed_units", {{"input_tokens", request.prompt_tokens}}}}},
          {"response_type", "embeddings_by_type"}};
}

// The model's files need not have a prefix for the task: most models expect none.
Wrong embed_cohere(Call& call, const Exchange& exchange) {
  EmbeddingRequest request;
  const Json& body = call.body;
  const Result<TaskPrefixes>& prefixes = call.served().embeddings->prefixes();
  if (!prefixes.ok()) return ApiError::from(prefixes.error());
  if (auto prefix = prefixes->find(task_of(body.value("input_type", ""))); prefix.ok())
    request.prefix = std::move(*prefix);
  if (auto wrong = read_vector_pooling(call.served(), body, &request.pooling)) return wrong;
  if (auto wrong = read_dimensions(call.served(), body, "output_dimension", request)) return wrong;
  if (body.contains("embedding_types")) {
    const Json& types = body["embedding_types"];
    if (types.size() != 1 || (types[0] != "float" && types[0] != "base64"))
      return ApiError::unsupported("embedding_types", "one of [\"float\"] and [\"base64\"] is supported");
    request.base64 = types[0] == "base64";
  }
  const bool cuts = body.value("truncate", "END") == "END";
  if (auto wrong = add_texts(call.served(), "texts", body["texts"], cuts, request)) return wrong;
  return submit(
      call, exchange, kOpenAi, std::move(request),
      [id = "embed-" + call.service.new_id(), texts = body["texts"]](
          const EmbeddingRequest& done, const Vectors& vectors) { return cohere_json(done, vectors, id, texts); });
}

Endpoint cohere_endpoint(Field dimensions) {
  dimensions.name = "output_dimension";
  Field truncate{"truncate", kJsonText, "END", "END: truncate texts longer than the context; NONE: reject them"};
  truncate.choices = {"END", "NONE"};
  Field task{"input_type", kJsonText, "none",
             "search_query, search_document: the prefix that the model's files state for query or document, if any"};
  task.choices = {"search_query", "search_document", "classification", "clustering"};
  return {.method = "POST",
          .path = "/v2/embed",
          .dialect = &kOpenAi,
          .summary = "Embeds texts as vectors of length 1, in Cohere's format.",
          .fields = joined({{model_field(),
                             text_field("texts", kJsonTexts, true, "a list of texts"),
                             task,
                             {"embedding_types", kJsonTexts, "[\"float\"]",
                              "[\"float\"]: numbers; [\"base64\"]: their bytes as little-endian 32-bit floats"},
                             dimensions,
                             truncate,
                             pooling_field()},
                            reading_fields()}),
          .begin = embed_cohere};
}

Field dimensions_field() {
  Field field{"dimensions", kJsonInteger, "all",
              "number of leading values to keep of each vector, rescaled to a length of 1"};
  field.min = 1;
  field.max = 1 << 20;
  return field;
}

Field encoding_field() {
  Field field{"encoding_format", kJsonText, "float",
              "float: numbers; base64: their bytes as little-endian 32-bit floats"};
  field.choices = {"float", "base64"};
  return field;
}

}  // namespace

std::vector<Endpoint> embedding_endpoints() {
  constexpr unsigned kTextsOrTokens = kJsonText | kJsonTexts | kJsonTokens | kJsonTokenLists;
  const Field openai_input = text_field("input", kTextsOrTokens, true, "text or tokens, or a list of either");
  Field content = text_field("content", kTextsOrTokens, false, "other name of input");
  Field input = text_field("input", kTextsOrTokens, false, "text or tokens, or a list of either");
  Field scale{"embd_normalize", kJsonInteger, "2", "2: vectors are normalized to a length of 1; -1: not normalized"};
  scale.set = [](const Json& value, GenerationRequest&) -> Wrong {
    if (value == 2 || value == -1) return std::nullopt;
    return ApiError::unsupported("embd_normalize", "only 2 and -1 are supported");
  };
  const Field options = ignored_field("options", kJsonObject,
                                      "they configure sampling, and how the model is loaded, which the server decides");
  const Field truncate{"truncate", kJsonBoolean, "true",
                       "truncate texts longer than the context, and list them in `truncated`; false: reject them"};
  std::vector<Endpoint> list;
  list.push_back(
      {.method = "POST",
       .path = "/v1/embeddings",
       .dialect = &kOpenAi,
       .summary = "Embeds texts as vectors of length 1.",
       .fields = joined({{model_field(),
                          openai_input,
                          encoding_field(),
                          dimensions_field(),
                          pooling_field(),
                          prompt_name_field(),
                          {"task", kJsonText, "none",
                           "task of Jina's API; rejected if the model's folder has an adapter for each task, "
                           "which is not supported, and ignored otherwise"}},
                         reading_fields(),
                         other_embedding_fields()}),
       .begin = embed_openai});
  for (const char* path : {"/embedding", "/embeddings"})
    list.push_back({.method = "POST",
                    .path = path,
                    .dialect = &kLlamaServer,
                    .summary = "Embeds texts as vectors.",
                    .fields = joined(
                        {{model_field(), input, content, encoding_field(), pooling_field(), prompt_name_field(), scale},
                         reading_fields()}),
                    .begin = embed_llama});
  list.push_back(
      {.method = "POST",
       .path = "/api/embed",
       .dialect = &kOllama,
       .summary = "Embeds texts as vectors of length 1.",
       .fields = {model_field(), text_field("input", kJsonText | kJsonTexts, true, "text, or a list of texts"),
                  truncate, dimensions_field(), keep_alive_field(), options},
       .begin = embed_ollama});
  list.push_back({.method = "POST",
                  .path = "/api/embeddings",
                  .dialect = &kOllama,
                  .summary = "Embeds one text, without normalizing its vector.",
                  .fields = {model_field(), text_field("prompt", kJsonText, true, "text"), keep_alive_field(), options},
                  .begin = embed_old_ollama});
  list.push_back(cohere_endpoint(dimensions_field()));
  return list;
}

}  // namespace millrace
