// The C interface's models: loading, tokens, chat templates and embeddings.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "capi/chat_json.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/option_table.h"
#include "capi/options.h"
#include "evaluate/embed_texts.h"
#include "run/language_model.h"

namespace millrace {
namespace {

// The bytes of version 1 end with this member.
constexpr size_t kFirstInfoBytes = offsetof(millrace_model_info, warnings) + sizeof(const char*);
constexpr double kMaxBatch = 65536;
constexpr double kMaxDimensions = 1 << 20;

Result<void> load(const char* path, const millrace_option* options, size_t count, millrace_model** model) {
  if (!model) return null_argument("model");
  *model = nullptr;
  MILLRACE_TRY(const GivenOptions given, given_options(options, count));
  MILLRACE_TRY(LoadOptions load, load_options(given));
  auto out = std::make_unique<millrace_model>();
  load.warn = [&](const std::string& warning) { out->warnings += (out->warnings.empty() ? "" : "\n") + warning; };
  MILLRACE_TRY(out->model, LanguageModel::load(path ? path : "", load));
  *model = out.release();
  return {};
}

Result<void> describe(const millrace_model* model, millrace_model_info* info) {
  if (!model) return null_argument("model");
  MILLRACE_TRY(millrace_model_info out, read_struct(info, kFirstInfoBytes, "info"));
  const ModelInfo& from = model->model->info();
  out.name = from.name.c_str();
  out.architecture = from.architecture.c_str();
  out.parameters = from.parameters;
  out.weight_bytes = from.weight_bytes;
  out.context = from.context;
  out.vocabulary = from.vocab;
  out.warnings = model->warnings.c_str();
  write_struct(info, out);
  return {};
}

Result<millrace_status> tokenize(const millrace_model* model, const char* text, size_t text_bytes, uint32_t flags,
                                 int32_t* tokens, size_t capacity, size_t* count) {
  if (!model) return null_argument("model");
  if (!text && text_bytes > 0) return null_argument("text");
  if (!count) return null_argument("count");
  if (!tokens && capacity > 0) return null_argument("tokens");
  MILLRACE_TRY(const auto ids, model->model->encode({text ? text : "", text_bytes}, flags & MILLRACE_ADD_SPECIAL,
                                                    flags & MILLRACE_PARSE_SPECIAL));
  *count = ids.size();
  if (ids.size() > capacity) return MILLRACE_BUFFER_TOO_SMALL;
  std::ranges::copy(ids, tokens);
  return MILLRACE_OK;
}

Result<void> detokenize(const millrace_model* model, const int32_t* tokens, size_t count, uint32_t flags, char** text,
                        size_t* text_bytes) {
  if (!text) return null_argument("text");
  *text = nullptr;
  if (!model) return null_argument("model");
  if (!tokens && count > 0) return null_argument("tokens");
  const std::vector<TokenId> ids(tokens, tokens + count);
  const int64_t vocabulary = model->model->info().vocab;
  for (TokenId id : ids)
    if (id < 0 || id >= vocabulary)
      return Error::user(fmt::format("token {}: is outside the model's vocabulary of {}", id, vocabulary));
  const std::string out = model->model->decode(ids, flags & MILLRACE_SKIP_SPECIAL);
  *text = copy_for_caller(out);
  if (text_bytes) *text_bytes = out.size();
  return {};
}

Result<void> render(const millrace_model* model, const char* messages, bool add_generation_prompt, char** text) {
  if (!text) return null_argument("text");
  *text = nullptr;
  if (!model) return null_argument("model");
  if (!messages) return null_argument("messages");
  MILLRACE_TRY(const std::string out, chat_of_json(*model->model, messages, add_generation_prompt));
  *text = copy_for_caller(out);
  return {};
}

Result<EmbedOptions> embed_options(const GivenOptions& given) {
  using Type = OptionSpec::Type;
  static const OptionTable<EmbedOptions> table({
      {{"pooling", Type::text, "", 0, 0, ""}, &EmbedOptions::pooling},
      {{"prompt_name", Type::text, "", 0, 0, ""}, &EmbedOptions::prompt_name},
      {{"dimensions", Type::integer, "0", 0, kMaxDimensions, ""}, &EmbedOptions::dimensions},
      {{"raw", Type::boolean, "false", 0, 1, ""}, &EmbedOptions::raw},
      {{"kv_format", Type::text, "", 0, 0, ""}, &EmbedOptions::kv_format},
      {{"batch_tokens", Type::integer, "512", 1, kMaxBatch, ""}, &EmbedOptions::batch_tokens},
      {{"threads", Type::integer, "0", 0, kMaxThreads, ""}, &EmbedOptions::threads},
  });
  EmbedOptions out;
  for (const auto& [name, value] : given) {
    MILLRACE_TRY(const bool known, table.set(out, name, value));
    if (!known) return unknown_option(name, "embeddings", table.names());
  }
  if (out.pooling == pooling_name(Pooling::none))
    return Error::unsupported("pooling: none has one vector per token; the C interface returns one per text");
  return out;
}

Result<void> embed(const millrace_model* model, const char* const* texts, size_t text_count,
                   const millrace_option* options, size_t option_count, float** values, size_t* width) {
  if (!values) return null_argument("values");
  *values = nullptr;
  if (!model) return null_argument("model");
  if (!width) return null_argument("width");
  if (!texts || text_count == 0) return Error::user("texts: there is none; pass at least one text");
  MILLRACE_TRY(const GivenOptions given, given_options(options, option_count));
  MILLRACE_TRY(EmbedOptions embedding, embed_options(given));
  if (embedding.pooling.empty()) {
    MILLRACE_TRY(const Pooling own, model_pooling(*model->model->parts().files));
    if (own == Pooling::none)
      return Error::unsupported("pooling: the model has one vector per token; choose pooling mean, cls or last");
    embedding.pooling = pooling_name(own);
  }
  std::vector<std::string> copies;
  for (size_t i = 0; i < text_count; ++i) {
    if (!texts[i]) return Error::user(fmt::format("text {}: is NULL", i));
    copies.emplace_back(texts[i]);
  }
  std::vector<float> all;
  MILLRACE_TRY_VOID(embed_texts(model->model, copies, embedding, [&](size_t, size_t, std::vector<float> row) {
    all.insert(all.end(), row.begin(), row.end());
  }));
  auto* out = static_cast<float*>(std::malloc(std::max<size_t>(all.size(), 1) * sizeof(float)));
  if (!out) throw std::bad_alloc();
  std::ranges::copy(all, out);
  *values = out;
  *width = all.size() / text_count;
  return {};
}

}  // namespace
}  // namespace millrace

extern "C" {

millrace_status millrace_model_load(const char* path, const millrace_option* options, size_t option_count,
                                    millrace_model** model, char** error) {
  return millrace::guarded(error, [&] { return millrace::load(path, options, option_count, model); });
}

void millrace_model_free(millrace_model* model) { delete model; }

millrace_status millrace_model_describe(const millrace_model* model, millrace_model_info* info, char** error) {
  return millrace::guarded(error, [&] { return millrace::describe(model, info); });
}

millrace_status millrace_tokenize(const millrace_model* model, const char* text, size_t text_bytes, uint32_t flags,
                                  int32_t* tokens, size_t capacity, size_t* count, char** error) {
  return millrace::guarded(error,
                           [&] { return millrace::tokenize(model, text, text_bytes, flags, tokens, capacity, count); });
}

millrace_status millrace_detokenize(const millrace_model* model, const int32_t* tokens, size_t count, uint32_t flags,
                                    char** text, size_t* text_bytes, char** error) {
  return millrace::guarded(error, [&] { return millrace::detokenize(model, tokens, count, flags, text, text_bytes); });
}

millrace_status millrace_render_chat(const millrace_model* model, const char* messages, int32_t add_generation_prompt,
                                     char** text, char** error) {
  return millrace::guarded(error, [&] { return millrace::render(model, messages, add_generation_prompt != 0, text); });
}

millrace_status millrace_embed(const millrace_model* model, const char* const* texts, size_t text_count,
                               const millrace_option* options, size_t option_count, float** values, size_t* width,
                               char** error) {
  return millrace::guarded(
      error, [&] { return millrace::embed(model, texts, text_count, options, option_count, values, width); });
}

}  // extern "C"
