#include "server/api/text_vectors.h"

#include <fmt/format.h>

#include "prompt/task_prefixes.h"
#include "run/language_model.h"
#include "server/generation/engine_choices.h"
#include "server/generation/prompt_reads.h"

namespace millrace {

Field text_field(const char* name, unsigned types, bool required, const char* help) {
  Field field{name, types, "", help};
  field.required = required;
  field.most = size_t{64} << 20;
  return field;
}

Field pooling_field() {
  Field field{"pooling", kJsonText, "model default",
              "how the tokens' hidden states are combined into one vector; none: one vector for each token"};
  field.choices = {"none", "mean", "cls", "last"};
  return field;
}

ApiError too_many_tokens(const char* field, const std::string& what, int64_t count, int64_t most) {
  ApiError error{ApiErrorKind::too_long,
                 fmt::format("{}: {} {} tokens, more than the context of {}", field, what, count, most), field};
  error.prompt_tokens = count;
  error.context = most;
  return error;
}

Field prompt_name_field() {
  return {"prompt_name", kJsonText, "model default",
          "task whose prefix the model's files put before texts, such as query; its name in prompts of "
          "config_sentence_transformers.json"};
}

Wrong read_prefix(const ServedModel& served, const char* field, const std::optional<std::string>& task,
                  TextTokens& out) {
  const Result<TaskPrefixes>& prefixes = served.embeddings->prefixes();
  if (!prefixes.ok()) return ApiError::from(prefixes.error());
  auto prefix = prefixes->find(task);
  if (!prefix.ok()) return ApiError::bad(field, prefix.error().message);
  out.prefix = std::move(*prefix);
  return std::nullopt;
}

// Keeps the token that ends every text of the model, such as [SEP].
static void cut_text(const ServedModel& served, int64_t most, std::vector<TokenId>& tokens) {
  const TokenId last = tokens.back();
  tokens.resize(static_cast<size_t>(most));
  const auto& tokenizer = served.model->parts().tokenizer;
  if (tokenizer && (last == tokenizer->spec().sep || last == tokenizer->spec().eos)) tokens.back() = last;
}

Wrong add_text(const ServedModel& served, const char* name, const Json& input, bool truncate, TextTokens& out) {
  std::vector<TokenId> tokens;
  if (input.is_string()) {
    const std::string& text = input.get_ref<const std::string&>();
    auto encoded = served.model->encode(out.prefix.empty() ? text : out.prefix + text);
    if (!encoded.ok()) return ApiError::from(encoded.error());
    tokens = std::move(*encoded);
  } else {
    tokens = input.get<std::vector<TokenId>>();
    for (TokenId token : tokens)
      if (token >= served.model->info().vocab)
        return ApiError::bad(
            name, fmt::format("token {} is outside the vocabulary of {}", token, served.model->info().vocab));
  }
  const auto count = static_cast<int64_t>(tokens.size()), context = served.embeddings->context();
  if (count == 0) return ApiError::bad(name, "contains an empty text, and this model adds no start token");
  if (count > context && !truncate) return too_many_tokens(name, "a text has", count, context);
  if (count > context) {
    cut_text(served, context, tokens);
    out.truncated.push_back(out.texts.size());
  }
  out.prompt_tokens += static_cast<int64_t>(tokens.size());
  out.texts.push_back(std::move(tokens));
  return std::nullopt;
}

Wrong add_texts(const ServedModel& served, const char* name, const Json& input, bool truncate, TextTokens& out) {
  const bool one = input.is_string() || (input.is_array() && !input.empty() && input[0].is_number());
  if (input.empty() && !one) return ApiError::bad(name, "is empty");
  if (one) return add_text(served, name, input, truncate, out);
  if (input.size() > kMaxTexts)
    return ApiError::bad(name, fmt::format("at most {} texts, got {}", kMaxTexts, input.size()));
  for (const Json& text : input)
    if (auto wrong = add_text(served, name, text, truncate, out)) return wrong;
  return std::nullopt;
}

Wrong read_pooling(const ServedModel& served, const Json& body, Pooling* pooling) {
  if (body.contains("pooling")) {
    *pooling = *find_pooling(body["pooling"].get_ref<const std::string&>());
    return std::nullopt;
  }
  const Result<Pooling>& own = served.embeddings->pooling();
  if (!own.ok()) return ApiError::from(own.error());
  *pooling = *own;
  return std::nullopt;
}

Wrong read_vector_pooling(const ServedModel& served, const Json& body, Pooling* pooling) {
  if (auto wrong = read_pooling(served, body, pooling)) return wrong;
  if (*pooling == Pooling::none)
    return ApiError::bad("pooling", "'none' gives a vector for each token, and this endpoint needs one for each text");
  return std::nullopt;
}

Wrong embed_texts(Call& call, const Exchange& exchange, const Dialect& dialect, std::vector<std::vector<TokenId>> texts,
                  Pooling pooling, int64_t prompt_tokens, std::function<Json(EmbeddedTexts&)> write) {
  Service& service = call.service;
  EmbeddingWorker::Work work{.texts = std::move(texts),
                             .pooling = pooling,
                             .share = service.share_of(call.request, call.params),
                             .unwanted = std::make_shared<std::atomic<bool>>(false)};
  exchange.on_disconnect([unwanted = work.unwanted] { *unwanted = true; });
  std::shared_ptr<KeyUse> use;
  if (call.request.account) {
    if (auto refused = call.request.account->begin(prompt_tokens, 1, unix_seconds())) return refused;
    use = std::make_shared<KeyUse>(call.request.account, prompt_tokens, 1);
  }
  work.done = [&service, &dialect, exchange, use, keep_alive = call.params.served, write = std::move(write),
               share = work.share, headers = service.headers(call.request)](Result<EmbeddedTexts> vectors) {
    if (!vectors.ok()) return exchange.reply(service.refused(dialect, reading_error(vectors.error(), share), headers));
    Json out = write(*vectors);
    if (Json engine = reading_choices(*keep_alive); out.is_object() && !engine.empty())
      out["millrace"] = {{"engine", std::move(engine)}};
    exchange.reply({.headers = headers, .body = to_text(out)});
  };
  auto added = call.served().embeddings->add(std::move(work));
  if (added.ok()) return std::nullopt;
  if (use) use->give_back();
  return ApiError::from(added.error());
}

}  // namespace millrace
