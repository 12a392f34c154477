// Which of several documents answer a query: /rerank as llama-server, Jina, Cohere and vLLM have it, and vLLM's /score.
//
//   a model with a ranking head       each pair of query and document is read whole (engine/rank_prompt.h), and scored
//   a model made for embeddings       the cosine of the query's and each document's vectors
//   any other                         refused: its cosines mean little. /score, which is asked for by name, gives them
//
// A head with one label gives its logit where llama-server's paths are asked, and the logit's sigmoid where vLLM's are;
// `use_activation` says which in both. Pairs are streams of their own: a score does not depend on the others.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "models/ranking_head.h"
#include "run/language_model.h"
#include "run/rank_prompt.h"
#include "server/api/sampling_fields.h"
#include "server/api/text_vectors.h"

namespace millrace {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 20;  // of one request: a query counts with each document
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

enum class Shape { results, texts };  // Jina's and Cohere's object; TEI's list

// One request: what is to be scored, and how it is written.
struct Asked : TextTokens {
  std::optional<RankingHead> head;  // none: cosines
  bool activated = false;
  size_t left = 0;  // of cosines: texts before those that are compared with them; 1 or as many
  std::string model, id;
  int64_t created = 0;
  // Of /rerank.
  Shape shape = Shape::results;
  bool with_documents = false;
  std::vector<std::string> documents;
  int64_t most_results = kAll;
};

// What a request allows to be cut.
struct Limits {
  int64_t pair = 0;         // tokens of a pair, or of a text
  int64_t document = kAll;  // of a document alone
  bool cuts = false;
};

Limits read_limits(const ServedModel& served, const Json& body) {
  Limits limits{.pair = served.embeddings->context()};
  const int64_t asked = body.value("truncate_prompt_tokens", int64_t{0});
  limits.cuts = asked != 0 || body.contains("max_tokens_per_doc");
  if (asked > 0) limits.pair = std::min(limits.pair, asked);
  if (body.contains("max_tokens_per_doc")) limits.document = body["max_tokens_per_doc"].get<int64_t>();
  return limits;
}

Wrong read_head(const ServedModel& served, Asked& asked) {
  const auto& parts = served.model->parts();
  auto head = RankingHead::read(*parts.files, parts.model->spec());
  if (!head.ok()) return ApiError::from(head.error());
  asked.head = std::move(*head);
  return std::nullopt;
}

Wrong check_total(int64_t tokens) {
  if (tokens <= kMostTokens) return std::nullopt;
  return ApiError::bad(
      "documents",
      fmt::format("all pairs together have more than {} tokens; send fewer documents at a time", kMostTokens));
}

Wrong add_pair(const ServedModel& served, const RankPrompt& prompt, const Limits& limits, const char* field,
               const std::string& query, const std::string& document, Asked& asked) {
  const size_t index = asked.texts.size();
  std::vector<TokenId> tokens;
  if (limits.cuts) {
    auto cut = prompt.cut(query, document, limits.pair, limits.document);
    if (!cut.ok()) return ApiError::from(cut.error());
    if (cut->shortened) asked.truncated.push_back(index);
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
  asked.prompt_tokens += count;
  asked.texts.push_back(std::move(tokens));
  return check_total(asked.prompt_tokens);
}

// A text by itself, for its vector. `compared`: its place among those that are ranked; none for a query.
Wrong add_alone(const ServedModel& served, const Limits& limits, const char* field, const Json& text,
                std::optional<size_t> compared, Asked& asked) {
  TextTokens one;
  if (!limits.cuts) {
    if (auto wrong = add_text(served, field, text, false, one)) return wrong;
  } else {
    auto tokens = text.is_string() ? served.model->encode(text.get_ref<const std::string&>())
                                   : Result<std::vector<TokenId>>(text.get<std::vector<TokenId>>());
    if (!tokens.ok()) return ApiError::from(tokens.error());
    const int64_t most = compared ? std::min(limits.pair, limits.document) : limits.pair;
    if (static_cast<int64_t>(tokens->size()) > most) {
      if (!compared) return too_many_tokens(field, "the text has", static_cast<int64_t>(tokens->size()), most);
      asked.truncated.push_back(*compared);
      tokens->resize(static_cast<size_t>(most));
    }
    if (auto wrong = add_text(served, field, Json(*tokens), false, one)) return wrong;
  }
  asked.prompt_tokens += one.prompt_tokens;
  asked.texts.push_back(std::move(one.texts.front()));
  return check_total(asked.prompt_tokens);
}

// What each of the compared texts got, in their order.
std::vector<double> scores_of(const Asked& asked, TextVectors& vectors) {
  std::vector<double> out;
  if (asked.head) {
    for (const auto& hidden : vectors) out.push_back(asked.head->score(hidden, asked.activated));
    return out;
  }
  for (auto& vector : vectors) normalize(vector);
  for (size_t i = asked.left; i < vectors.size(); ++i) {
    const auto& query = vectors[asked.left == 1 ? 0 : i - asked.left];
    double cosine = 0;
    for (size_t j = 0; j < query.size(); ++j) cosine += static_cast<double>(query[j]) * vectors[i][j];
    out.push_back(cosine);
  }
  return out;
}

// What both answers say of how they came about.
void add_facts(const Asked& asked, Json& out) {
  out["usage"] = {{"prompt_tokens", asked.prompt_tokens}, {"total_tokens", asked.prompt_tokens}};
  out["scored_by"] = asked.head ? "ranking_head" : "cosine";
  if (!asked.truncated.empty()) out["truncated"] = asked.truncated;
}

Wrong submit(Call& call, const Exchange& exchange, const Dialect& dialect, Asked asked, Pooling pooling,
             Json (*write)(const Asked&, const std::vector<double>&)) {
  asked.model = call.served().name();
  const auto shared = std::make_shared<Asked>(std::move(asked));
  return embed_texts(call, exchange, dialect, std::move(shared->texts), pooling, shared->prompt_tokens,
                     [shared, write](TextVectors& vectors) { return write(*shared, scores_of(*shared, vectors)); });
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

Wrong read_vector_pooling(const ServedModel& served, const Json& body, Pooling* pooling) {
  if (auto wrong = read_pooling(served, body, pooling)) return wrong;
  if (*pooling == Pooling::none) return ApiError::bad("pooling", "'none' gives a vector for each token, and no score");
  return std::nullopt;
}

// --- rerank
// -------------------------------------------------------------------------------------------------------------

Json rerank_json(const Asked& asked, const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(std::min<int64_t>(asked.most_results, static_cast<int64_t>(order.size()))));
  Json results = Json::array();
  for (size_t index : order) {
    Json one = {{"index", index}, {asked.shape == Shape::texts ? "score" : "relevance_score", scores[index]}};
    if (asked.with_documents && asked.shape == Shape::texts)
      one["text"] = asked.documents[index];
    else if (asked.with_documents)
      one["document"] = {{"text", asked.documents[index]}};
    results.push_back(std::move(one));
  }
  if (asked.shape == Shape::texts) return results;
  Json out = {{"id", asked.id}, {"object", "list"}, {"model", asked.model}, {"results", std::move(results)}};
  add_facts(asked, out);
  return out;
}

// Strings, or objects whose `text` counts.
Wrong read_documents(const Json& body, Asked& asked) {
  const bool given = body.contains("documents");
  if (given == body.contains("texts"))
    return ApiError::bad("documents", given ? "cannot be combined with texts, its other name" : "is missing");
  const char* name = given ? "documents" : "texts";
  asked.shape = given ? Shape::results : Shape::texts;
  const Json& list = body[name];
  if (list.empty()) return ApiError::bad(name, "is empty");
  if (list.size() > kMostTexts) return ApiError::bad(name, fmt::format("at most {}, got {}", kMostTexts, list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    const bool object = list[i].is_object() && list[i].contains("text") && list[i]["text"].is_string();
    if (!object && !list[i].is_string())
      return ApiError::bad(name, fmt::format("item {} must be a string, or an object with a string `text`", i));
    asked.documents.push_back((object ? list[i]["text"] : list[i]).get<std::string>());
  }
  return std::nullopt;
}

Wrong rerank(Call& call, const Exchange& exchange, const Dialect& dialect, bool as_vllm) {
  const ServedModel& served = call.served();
  const Json& body = call.body;
  Asked asked;
  if (auto wrong = read_head(served, asked)) return wrong;
  if (!asked.head && !call.service.options().pooling && !states_pooling(*served.model->parts().files))
    return ApiError{ApiErrorKind::unsupported,
                    "rerank: the model has no ranking head and is not an embedding model; /score compares texts by the "
                    "cosine of their vectors",
                    "model"};
  if (auto wrong = read_documents(body, asked)) return wrong;
  asked.activated = body.value("use_activation", as_vllm);
  asked.with_documents =
      asked.shape == Shape::texts ? body.value("return_text", false) : body.value("return_documents", as_vllm);
  if (const int64_t most = body.value("top_n", int64_t{0}); most > 0) asked.most_results = most;
  asked.id = "rerank-" + call.service.new_id();
  const std::string& query = body["query"].get_ref<const std::string&>();
  const Limits limits = read_limits(served, body);
  const char* field = asked.shape == Shape::texts ? "texts" : "documents";
  Pooling pooling = Pooling::last;
  if (asked.head) {
    if (auto wrong = check_head(*asked.head)) return wrong;
    auto prompt = RankPrompt::create(*served.model);
    if (!prompt.ok()) return ApiError::from(prompt.error());
    for (const std::string& document : asked.documents)
      if (auto wrong = add_pair(served, *prompt, limits, field, query, document, asked)) return wrong;
  } else {
    asked.left = 1;
    if (auto wrong = read_vector_pooling(served, body, &pooling)) return wrong;
    if (auto wrong = add_alone(served, limits, "query", body["query"], {}, asked)) return wrong;
    for (size_t i = 0; i < asked.documents.size(); ++i)
      if (auto wrong = add_alone(served, limits, field, Json(asked.documents[i]), i, asked)) return wrong;
  }
  return submit(call, exchange, dialect, std::move(asked), pooling, rerank_json);
}

Wrong rerank_llama(Call& call, const Exchange& exchange) { return rerank(call, exchange, kLlamaServer, false); }
Wrong rerank_vllm(Call& call, const Exchange& exchange) { return rerank(call, exchange, kOpenAi, true); }

// --- score
// --------------------------------------------------------------------------------------------------------------

Json score_json(const Asked& asked, const std::vector<double>& scores) {
  Json data = Json::array();
  for (size_t i = 0; i < scores.size(); ++i) data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
  Json out = {{"id", asked.id},
              {"object", "list"},
              {"created", asked.created},
              {"model", asked.model},
              {"data", std::move(data)}};
  add_facts(asked, out);
  return out;
}

// A text, its tokens, or a list of such: as a list.
Json as_list(const Json& input) {
  const bool one = input.is_string() || (!input.empty() && input[0].is_number());
  return one ? Json::array({input}) : input;
}

Wrong add_score_pairs(const ServedModel& served, const Json& body, const Json& left, const Json& right, Asked& asked) {
  if (auto wrong = check_head(*asked.head)) return wrong;
  for (const auto& [name, list] : {std::pair("text_1", &left), {"text_2", &right}})
    for (const Json& text : *list)
      if (!text.is_string())
        return ApiError::bad(name, "must be text: a ranking head reads both texts as one, in its own template");
  auto prompt = RankPrompt::create(*served.model);
  if (!prompt.ok()) return ApiError::from(prompt.error());
  const Limits limits = read_limits(served, body);
  for (size_t i = 0; i < right.size(); ++i) {
    const Json& query = left[left.size() == 1 ? 0 : i];
    if (auto wrong = add_pair(served, *prompt, limits, "text_2", query.get_ref<const std::string&>(),
                              right[i].get_ref<const std::string&>(), asked))
      return wrong;
  }
  return std::nullopt;
}

Wrong score(Call& call, const Exchange& exchange) {
  const ServedModel& served = call.served();
  const Json left = as_list(call.body["text_1"]), right = as_list(call.body["text_2"]);
  for (const auto& [name, list] : {std::pair("text_1", &left), {"text_2", &right}}) {
    if (list->empty()) return ApiError::bad(name, "is empty");
    if (list->size() > kMostTexts)
      return ApiError::bad(name, fmt::format("at most {} texts, got {}", kMostTexts, list->size()));
  }
  if (left.size() != 1 && left.size() != right.size())
    return ApiError::bad(
        "text_1", fmt::format("must be one text, or as many as text_2; got {} and {}", left.size(), right.size()));
  Asked asked;
  if (auto wrong = read_head(served, asked)) return wrong;
  asked.activated = call.body.value("use_activation", true);
  Pooling pooling = Pooling::last;
  if (asked.head) {
    if (auto wrong = add_score_pairs(served, call.body, left, right, asked)) return wrong;
  } else {
    asked.left = left.size();
    const Limits limits = read_limits(served, call.body);
    if (auto wrong = read_vector_pooling(served, call.body, &pooling)) return wrong;
    for (const Json& text : left)
      if (auto wrong = add_alone(served, limits, "text_1", text, {}, asked)) return wrong;
    for (size_t i = 0; i < right.size(); ++i)
      if (auto wrong = add_alone(served, limits, "text_2", right[i], i, asked)) return wrong;
  }
  asked.id = "score-" + call.service.new_id();
  asked.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return submit(call, exchange, kOpenAi, std::move(asked), pooling, score_json);
}

Field whole_number(const char* name, const char* default_value, const char* help, double min) {
  Field field{name, kInteger, default_value, help};
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
  return {
      model_field(),
      text_field("query", kText, true, "the query that the documents are ranked by"),
      text_field("documents", kList, false, "strings, or objects with a string `text`"),
      text_field("texts", kList, false, "the same in TEI's format, which returns a list of `index` and `score`"),
      whole_number("top_n", "all", "number of best documents to return; 0: all", 0),
      {"return_documents", kBoolean, on, "return each document's text"},
      {"return_text", kBoolean, "false", "the same for `texts`"},
      {"use_activation", kBoolean, on, "for a ranking head with one label: the sigmoid of its logit; false: the logit"},
      truncation_field(),
      whole_number("max_tokens_per_doc", "all", "truncate documents to this many tokens, and list them in `truncated`",
                   1),
      pooling_field(),
      ignored_field("user", kText, "it identifies the client's end user, for the provider's statistics")};
}

}  // namespace

std::vector<Endpoint> ranking_endpoints() {
  constexpr unsigned kTextsOrTokens = kText | kTexts | kTokens | kTokenLists;
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
         .fields = {model_field(),
                    text_field("text_1", kTextsOrTokens, true,
                               "text or tokens, or a list as long as text_2's; for a ranking head, the query"),
                    text_field("text_2", kTextsOrTokens, true,
                               "text or tokens, or a list of either; for a ranking head, the document"),
                    pooling_field(),
                    {"use_activation", kBoolean, "true",
                     "for a ranking head with one label: the sigmoid of its logit; false: the logit"},
                    truncation_field(),
                    ignored_field("user", kText, "it identifies the client's end user, for the provider's statistics")},
         .begin = score});
  return list;
}

}  // namespace millrace
