#include "evaluate/embed_texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "evaluate/vector_head.h"
#include "prompt/task_prefixes.h"

namespace millrace {
namespace {

Result<Pooling> choose_pooling(const LanguageModel& model, const std::string& name) {
  if (name.empty()) return model_pooling(*model.parts().files);
  if (const auto chosen = find_pooling(name)) return *chosen;
  return Error::user(fmt::format("pooling: must be none, mean, cls or last, not {}", name));
}

}  // namespace

Result<void> embed_texts(std::shared_ptr<const LanguageModel> model, const std::vector<std::string>& texts,
                         const EmbedOptions& options, const EmbeddingSink& sink) {
  const ModelFiles& files = *model->parts().files;
  MILLRACE_TRY(const Pooling pooling, choose_pooling(*model, options.pooling));
  MILLRACE_TRY(const TaskPrefixes prefixes, TaskPrefixes::read(files));
  MILLRACE_TRY(const std::string prefix,
               prefixes.find(options.prompt_name.empty() ? std::nullopt : std::optional(options.prompt_name)));
  std::vector<std::vector<TokenId>> tokens;
  size_t longest = 1;
  for (const std::string& text : texts) {
    MILLRACE_TRY(auto encoded, model->encode(prefix + text));
    longest = std::max(longest, encoded.size());
    tokens.push_back(std::move(encoded));
  }
  MILLRACE_TRY(auto embedder, Embedder::create(model, {.threads = options.threads,
                                                       .context = static_cast<int64_t>(longest),
                                                       .batch_tokens = options.batch_tokens,
                                                       .kv_format = options.kv_format}));
  MILLRACE_TRY(const VectorHead head, VectorHead::read(files, embedder->width()));
  const bool pools = pooling != Pooling::none;
  const auto width = static_cast<size_t>(pools ? head.width() : embedder->width());
  if (options.dimensions > static_cast<int64_t>(width))
    return Error::user(
        fmt::format("dimensions: at most {}, the model's embedding size, not {}", width, options.dimensions));
  const size_t size = options.dimensions > 0 ? static_cast<size_t>(options.dimensions) : width;
  return embedder->run(tokens, pooling, [&](size_t text, std::vector<float> values) -> Result<void> {
    if (pools) head.apply(values);
    for (size_t at = 0; at < values.size(); at += width) {
      const auto first = values.begin() + static_cast<ptrdiff_t>(at);
      std::vector<float> row(first, first + static_cast<ptrdiff_t>(size));
      if (!options.raw) normalize(row);
      sink(text, tokens[text].size(), std::move(row));
    }
    return {};
  });
}

}  // namespace millrace
