// Ranks documents by a query: /rerank as in llama-server, Jina, Cohere and vLLM, and vLLM's /score.
//
//   model with a ranking head    scores each pair of query and document in one prompt (prompt/rank_prompt.h)
//   embedding model              cosine of the query's and each document's vectors
//   any other model              /rerank is rejected, because its cosines mean little; /score returns them
//
// For a head with one label, llama-server's paths return the logit by default and vLLM's the logit's sigmoid;
// `use_activation` selects either. Each pair is a stream of its own: its score does not depend on the others.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "models/ranking_head.h"
#include "prompt/rank_prompt.h"
#include "prompt/task_prefixes.h"
#include "run/language_model.h"
#include "server/api/sampling_fields.h"
#include "server/api/text_vectors.h"

namespace millrace {
namespace {

constexpr int64_t kMaxRankedTokens = int64_t{1} << 20;  // per request; the query counts once for each document
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

enum class Shape { results, texts };  // Jina's and Cohere's object, or TEI's list

// One request: the texts to score, and the response format.
struct RankRequest : TextTokens {
  std::optional<RankingHead> head;     // none: score by cosine
  const RankRecipe* recipe = nullptr;  // of the head, if it compares two tokens
  bool activated = false;
  size_t left = 0;  // for cosines: the number of queries before the documents; 1, or one for each
  std::string model, id;
  int64_t created = 0;
  // For /rerank.
  Shape shape = Shape::results;
  bool with_documents = false;
  std::vector<std::string> documents;
  std::string query_prefix, document_prefix;  // of vectors that are compared (prompt/task_prefixes.h)
  int64_t most_results = kAll;
};

Field instruction_field() {
  return text_field("instruction", kJsonText, false,
                    "what documents are ranked for, for a model that is served with --ranker; default: the recipe's");
}

// The truncation that a request allows.
struct Limits {
  int64_t pair = 0;         // tokens of a pair, or of a single text
  int64_t document = kAll;  // tokens of a document
  bool cuts = false;
};

Limits read_limits(const ServedModel& served, const Json& body) {
  Limits limits{.pair = served.embeddings->context()};
  const int64_t length = body.value("truncate_prompt_tokens", int64_t{0});
  limits.cuts = length != 0 || body.contains("max_tokens_per_doc");
  if (length > 0) limits.pair = std::min(limits.pair, length);
  if (body.contains("max_tokens_per_doc")) limits.document = body["max_tokens_per_doc"].get<int64_t>();
  return limits;
}

Wrong read_head(const ServedModel& served, RankRequest& request) {
  if (served.ranker) {
    request.head = served.ranker->head;
    request.recipe = served.ranker->recipe;
    return std::nullopt;
  }
  const auto& parts = served.model->parts();
  auto head = RankingHead::read(*parts.files, parts.model->spec());
  if (!head.ok()) return ApiError::from(head.error());
  request.head = std::move(*head);
  return std::nullopt;
}

Wrong check_total(int64_t tokens) {
  if (tokens <= kMaxRankedTokens) return std::nullopt;
  return ApiError::bad(
      "documents",
      fmt::format("all pairs together have more than {} tokens; send fewer documents at a time", kMaxRankedTokens));
}

Wrong add_pair(const ServedModel& served, const RankPrompt& prompt, const Limits& limits, const char* field,
               const std::string& query, const std::string& document, RankRequest& request) {
  const size_t index = request.texts.size();
  std::vector<TokenId> tokens;
  if (limits.cuts) {
    auto cut = prompt.cut(query, document, limits.pair, limits.document);
    if (!cut.ok()) return ApiError::from(cut.error());
    if (cut->shortened) request.truncated.push_back(index);
    tokens = std::move(cut->tokens);
  } else {
    auto whole = prompt.tokens(query, document);
    if (!whole.ok()) return ApiError::from(whole.error());
    tokens = std::move(*whole);
  }
  const auto count = static_cast<int64_t>(tokens.size());
  if (count == 0) return ApiError::bad(field, "contains an empty text, and this model adds no start token");
  if (count > served.embeddings->context())
    return too_many_tokens(field, fmt::format("text {} with its query has", index), count,
                           served.embeddings->context());
  request.prompt_tokens += count;
  request.texts.push_back(std::move(tokens));
  return check_total(request.prompt_tokens);
}

// Adds a single text to be embedded. `compared` is its index among the ranked documents; none for a query.
Wrong add_alone(const ServedModel& served, const Limits& limits, const char* field, const Json& text,
                std::optional<size_t> compared, RankRequest& request) {
  TextTokens one;
  if (text.is_string()) one.prefix = compared ? request.document_prefix : request.query_prefix;
  if (!limits.cuts) {
    if (auto wrong = add_text(served, field, text, false, one)) return wrong;
  } else {
    auto tokens = text.is_string() ? served.model->encode(one.prefix + text.get_ref<const std::string&>())
                                   : Result<std::vector<TokenId>>(text.get<std::vector<TokenId>>());
    if (!tokens.ok()) return ApiError::from(tokens.error());
    const int64_t most = compared ? std::min(limits.pair, limits.document) : limits.pair;
    if (static_cast<int64_t>(tokens->size()) > most) {
      if (!compared) return too_many_tokens(field, "the text has", static_cast<int64_t>(tokens->size()), most);
      request.truncated.push_back(*compared);
      tokens->resize(static_cast<size_t>(most));
    }
    if (auto wrong = add_text(served, field, Json(*tokens), false, one)) return wrong;
  }
  request.prompt_tokens += one.prompt_tokens;
  request.texts.push_back(std::move(one.texts.front()));
  return check_total(request.prompt_tokens);
}

// The score of each compared text, in order.
std::vector<double> scores_of(const RankRequest& request, EmbeddedTexts& vectors) {
  std::vector<double> out;
  if (request.head) {
    for (const auto& hidden : vectors) out.push_back(request.head->score(hidden, request.activated));
    return out;
  }
  for (auto& vector : vectors) normalize(vector);
  for (size_t i = request.left; i < vectors.size(); ++i) {
    const auto& query = vectors[request.left == 1 ? 0 : i - request.left];
    double cosine = 0;
    for (size_t j = 0; j < query.size(); ++j) cosine += static_cast<double>(query[j]) * vectors[i][j];
    out.push_back(cosine);
  }
  return out;
}

// Fields shared by both responses: usage and how scores were computed.
void add_facts(const RankRequest& request, Json& out) {
  out["usage"] = {{"prompt_tokens", request.prompt_tokens}, {"total_tokens", request.prompt_tokens}};
  out["scored_by"] = request.recipe ? "token_logits" : request.head ? "ranking_head" : "cosine";
  if (!request.truncated.empty()) out["truncated"] = request.truncated;
}

Wrong submit(Call& call, const Exchange& exchange, const Dialect& dialect, RankRequest request, Pooling pooling,
             Json (*write)(const RankRequest&, const std::vector<double>&)) {
  request.model = call.served().name();
  const auto shared = std::make_shared<RankRequest>(std::move(request));
  return embed_texts(call, exchange, dialect, std::move(shared->texts), pooling, shared->prompt_tokens,
                     [shared, write](EmbeddedTexts& vectors) { return write(*shared, scores_of(*shared, vectors)); });
}

// Returns the pooling that gives the row that the head reads.
Pooling pooling_of(const std::optional<RankingHead>& head) {
  if (!head || head->row() == RankingHead::Row::last) return Pooling::last;
  return head->row() == RankingHead::Row::mean ? Pooling::mean : Pooling::cls;
}

Wrong check_head(const RankingHead& head) {
  if (head.relevant()) return std::nullopt;
  std::string names;
  for (const std::string& label : head.labels()) names += (names.empty() ? "" : ", ") + label;
  return ApiError{ApiErrorKind::unsupported,
                  fmt::format("model: its ranking head has {} labels ({}), none of them \"yes\", so it cannot rank",
                              head.labels().size(), names),
                  "model"};
}

Wrong check_no_instruction(const Json& body) {
  if (!body.contains("instruction")) return std::nullopt;
  return ApiError::bad("instruction", "is for models that are served with --ranker; this one compares vectors");
}

// The model's prefixes of queries and documents, as far as its files state them.
Wrong read_prefixes(const ServedModel& served, RankRequest& request) {
  const Result<TaskPrefixes>& prefixes = served.embeddings->prefixes();
  if (!prefixes.ok()) return ApiError::from(prefixes.error());
  if (auto query = prefixes->find("query"); query.ok()) request.query_prefix = *query;
  if (auto document = prefixes->find("document"); document.ok()) request.document_prefix = *document;
  return std::nullopt;
}

// --- rerank ---

Json rerank_json(const RankRequest& request, const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(std::min<int64_t>(request.most_results, static_cast<int64_t>(order.size()))));
  Json results = Json::array();
  for (size_t index : order) {
    Json one = {{"index", index}, {request.shape == Shape::texts ? "score" : "relevance_score", scores[index]}};
    if (request.with_documents && request.shape == Shape::texts)
      one["text"] = request.documents[index];
    else if (request.with_documents)
      one["document"] = {{"text", request.documents[index]}};
    results.push_back(std::move(one));
  }
  if (request.shape == Shape::texts) return results;
  Json out = {{"id", request.id}, {"object", "list"}, {"model", request.model}, {"results", std::move(results)}};
  add_facts(request, out);
  return out;
}

// Strings, or objects with a `text`.
Wrong read_documents(const Json& body, RankRequest& request) {
  const bool given = body.contains("documents");
  if (given == body.contains("texts"))
    return ApiError::bad("documents", given ? "cannot be combined with texts, its other name" : "is missing");
  const char* name = given ? "documents" : "texts";
  request.shape = given ? Shape::results : Shape::texts;
  const Json& list = body[name];
  if (list.empty()) return ApiError::bad(name, "is empty");
  if (list.size() > kMaxTexts) return ApiError::bad(name, fmt::format("at most {}, got {}", kMaxTexts, list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    const bool object = list[i].is_object() && list[i].contains("text") && list[i]["text"].is_string();
    if (!object && !list[i].is_string())
      return ApiError::bad(name, fmt::format("item {} must be a string, or an object with a string `text`", i));
    request.documents.push_back((object ? list[i]["text"] : list[i]).get<std::string>());
  }
  return std::nullopt;
}

Wrong rerank(Call& call, const Exchange& exchange, const Dialect& dialect, bool as_vllm) {
  const ServedModel& served = call.served();
  const Json& body = call.body;
  RankRequest request;
  if (auto wrong = read_head(served, request)) return wrong;
  if (!request.head && !call.service.options().pooling && !states_pooling(*served.model->parts().files))
    return ApiError{ApiErrorKind::unsupported,
                    "rerank: the model has no ranking head and is not an embedding model; serve one that does, serve "
                    "Qwen3-Reranker with --ranker qwen3, or use /score, which compares texts by the cosine of their "
                    "vectors",
                    "model"};
  if (auto wrong = read_documents(body, request)) return wrong;
  request.activated = body.value("use_activation", as_vllm);
  request.with_documents =
      request.shape == Shape::texts ? body.value("return_text", false) : body.value("return_documents", as_vllm);
  if (const int64_t most = body.value("top_n", int64_t{0}); most > 0) request.most_results = most;
  request.id = "rerank-" + call.service.new_id();
  const std::string& query = body["query"].get_ref<const std::string&>();
  const Limits limits = read_limits(served, body);
  const char* field = request.shape == Shape::texts ? "texts" : "documents";
  Pooling pooling = pooling_of(request.head);
  if (request.head) {
    if (auto wrong = check_head(*request.head)) return wrong;
    auto prompt = RankPrompt::create(*served.model, request.recipe, body.value("instruction", ""));
    if (!prompt.ok()) return ApiError::from(prompt.error());
    for (const std::string& document : request.documents)
      if (auto wrong = add_pair(served, *prompt, limits, field, query, document, request)) return wrong;
  } else {
    if (auto wrong = check_no_instruction(body)) return wrong;
    request.left = 1;
    if (auto wrong = read_prefixes(served, request)) return wrong;
    if (auto wrong = read_vector_pooling(served, body, &pooling)) return wrong;
    if (auto wrong = add_alone(served, limits, "query", body["query"], {}, request)) return wrong;
    for (size_t i = 0; i < request.documents.size(); ++i)
      if (auto wrong = add_alone(served, limits, field, Json(request.documents[i]), i, request)) return wrong;
  }
  return submit(call, exchange, dialect, std::move(request), pooling, rerank_json);
}

Wrong rerank_llama(Call& call, const Exchange& exchange) { return rerank(call, exchange, kLlamaServer, false); }
Wrong rerank_vllm(Call& call, const Exchange& exchange) { return rerank(call, exchange, kOpenAi, true); }

// --- score ---

Json score_json(const RankRequest& request, const std::vector<double>& scores) {
  Json data = Json::array();
  for (size_t i = 0; i < scores.size(); ++i) data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
  Json out = {{"id", request.id},
              {"object", "list"},
              {"created", request.created},
              {"model", request.model},
              {"data", std::move(data)}};
  add_facts(request, out);
  return out;
}

// Wraps a text or its tokens in a list; a list is returned as is.
Json as_list(const Json& input) {
  const bool one = input.is_string() || (!input.empty() && input[0].is_number());
  return one ? Json::array({input}) : input;
}

Wrong add_score_pairs(const ServedModel& served, const Json& body, const Json& left, const Json& right,
                      RankRequest& request) {
  if (auto wrong = check_head(*request.head)) return wrong;
  for (const auto& [name, list] : {std::pair("text_1", &left), {"text_2", &right}})
    for (const Json& text : *list)
      if (!text.is_string())
        return ApiError::bad(name, "must be text: a ranking head reads both texts as one, in its own template");
  auto prompt = RankPrompt::create(*served.model, request.recipe, body.value("instruction", ""));
  if (!prompt.ok()) return ApiError::from(prompt.error());
  const Limits limits = read_limits(served, body);
  for (size_t i = 0; i < right.size(); ++i) {
    const Json& query = left[left.size() == 1 ? 0 : i];
    if (auto wrong = add_pair(served, *prompt, limits, "text_2", query.get_ref<const std::string&>(),
                              right[i].get_ref<const std::string&>(), request))
      return wrong;
  }
  return std::nullopt;
}

Wrong score(Call& call, const Exchange& exchange) {
  const ServedModel& served = call.served();
  const Json left = as_list(call.body["text_1"]), right = as_list(call.body["text_2"]);
  for (const auto& [name, list] : {std::pair("text_1", &left), {"text_2", &right}}) {
    if (list->empty()) return ApiError::bad(name, "is empty");
    if (list->size() > kMaxTexts)
      return ApiError::bad(name, fmt::format("at most {} texts, got {}", kMaxTexts, list->size()));
  }
  if (left.size() != 1 && left.size() != right.size())
    return ApiError::bad(
        "text_1", fmt::format("must be one text, or as many as text_2; got {} and {}", left.size(), right.size()));
  RankRequest request;
  if (auto wrong = read_head(served, request)) return wrong;
  request.activated = call.body.value("use_activation", true);
  Pooling pooling = pooling_of(request.head);
  if (request.head) {
    if (auto wrong = add_score_pairs(served, call.body, left, right, request)) return wrong;
  } else {
    if (auto wrong = check_no_instruction(call.body)) return wrong;
    request.left = left.size();
    const Limits limits = read_limits(served, call.body);
    if (auto wrong = read_vector_pooling(served, call.body, &pooling)) return wrong;
    for (const Json& text : left)
      if (auto wrong = add_alone(served, limits, "text_1", text, {}, request)) return wrong;
    for (size_t i = 0; i < right.size(); ++i)
      if (auto wrong = add_alone(served, limits, "text_2", right[i], i, request)) return wrong;
  }
  request.id = "score-" + call.service.new_id();
  request.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return submit(call, exchange, kOpenAi, std::move(request), pooling, score_json);
}

Field whole_number(const char* name, const char* default_value, const char* help, double min) {
  Field field{name, kJsonInteger, default_value, help};
  field.min = min;
  field.max = 1 << 24;
  return field;
}

Field truncation_field() {
  return whole_number("truncate_prompt_tokens", "0",
                      "truncate documents so that a pair has at most this many tokens, and list them in `truncated`; "
                      "-1: the context length; 0: reject longer pairs",
                      -1);
}

std::vector<Field> rerank_fields(bool as_vllm) {
  const char* on = as_vllm ? "true" : "false";
  return joined(
      {{model_field(),
        text_field("query", kJsonText, true, "the query that the documents are ranked by"),
        text_field("documents", kJsonList, false, "strings, or objects with a string `text`"),
        text_field("texts", kJsonList, false, "the same in TEI's format, which returns a list of `index` and `score`"),
        instruction_field(),
        whole_number("top_n", "all", "number of best documents to return; 0: all", 0),
        {"return_documents", kJsonBoolean, on, "return each document's text"},
        {"return_text", kJsonBoolean, "false", "the same for `texts`"},
        {"use_activation", kJsonBoolean, on,
         "for a ranking head with one label: the sigmoid of its logit; false: the logit"},
        truncation_field(),
        whole_number("max_tokens_per_doc", "all",
                     "truncate documents to this many tokens, and list them in `truncated`", 1),
        pooling_field(),
        ignored_field("user", kJsonText, "it identifies the client's end user, for the provider's statistics")},
       reading_fields()});
}

}  // namespace

std::vector<Endpoint> ranking_endpoints() {
  constexpr unsigned kTextsOrTokens = kJsonText | kJsonTexts | kJsonTokens | kJsonTokenLists;
  std::vector<Endpoint> list;
  for (const char* path : {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"})
    list.push_back({.method = "POST",
                    .path = path,
                    .dialect = &kLlamaServer,
                    .summary = "Ranks documents by how well they answer a query: with the model's ranking head, or for "
                               "an embedding model by cosine; `scored_by` says which.",
                    .fields = rerank_fields(false),
                    .begin = rerank_llama});
  list.push_back(
      {.method = "POST",
       .path = "/v2/rerank",
       .dialect = &kOpenAi,
       .summary = "The same with the defaults of vLLM and Cohere: scores from 0 to 1, and the documents with them.",
       .fields = rerank_fields(true),
       .begin = rerank_vllm});
  for (const char* path : {"/score", "/v1/score"})
    list.push_back(
        {.method = "POST",
         .path = path,
         .dialect = &kOpenAi,
         .summary = "Scores how well two texts match: with the model's ranking head, or by the cosine of their "
                    "vectors; `scored_by` says which.",
         .fields = joined(
             {{model_field(),
               text_field("text_1", kTextsOrTokens, true,
                          "text or tokens, or a list as long as text_2's; for a ranking head, the query"),
               text_field("text_2", kTextsOrTokens, true,
                          "text or tokens, or a list of either; for a ranking head, the document"),
               pooling_field(),
               {"use_activation", kJsonBoolean, "true",
                "for a ranking head with one label: the sigmoid of its logit; false: the logit"},
               instruction_field(),
               truncation_field(),
               ignored_field("user", kJsonText, "it identifies the client's end user, for the provider's statistics")},
              reading_fields()}),
         .begin = score});
  return list;
}

}  // namespace millrace
