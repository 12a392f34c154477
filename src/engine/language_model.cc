#include "engine/language_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/embedded_model.h"
#include "text/template/chat_messages.h"
#include "text/template/chat_template.h"

namespace millrace {

Result<ModelFiles> open_model(const std::string& path) {
  if (!path.empty()) return open_model_files(path);
  if (embedded_models().empty()) return Error::user("no model ships in this build; name one with -m PATH");
  const EmbeddedModel& embedded = embedded_models().front();
  return open_gguf_image(embedded.image, std::string(embedded.name));
}

int64_t count_parameters(const ModelFiles& files) {
  int64_t count = 0;
  for (const auto& stored : files.tensors)
    if (stored.tensor.format) count += stored.tensor.values();
  return count;
}

LanguageModel::LanguageModel() : parts_(std::make_unique<Parts>()) {}
LanguageModel::~LanguageModel() = default;

Result<std::shared_ptr<const LanguageModel>> LanguageModel::load(const std::string& path, const LoadOptions& options) {
  MILLRACE_TRY(Isa isa, select_isa());
  auto loaded = std::shared_ptr<LanguageModel>(new LanguageModel());
  Parts& parts = *loaded->parts_;
  parts.kernels = make_kernel_table(isa);
  MILLRACE_TRY(auto files, open_model(path));
  if (files.tokenizer) {
    auto tokenizer = Tokenizer::create(*files.tokenizer);
    if (!tokenizer.ok()) return Error{tokenizer.error().kind, fmt::format("{}: tokenizer: {}", files.path, tokenizer.error().message)};
    parts.tokenizer = std::move(tokenizer).value();
  }
  parts.files = std::make_shared<const ModelFiles>(std::move(files));
  ThreadPool pool(options.threads > 0 ? options.threads : available_cores());
  MILLRACE_TRY(auto model, Model::load(parts.files, parts.kernels, pool, {options.context, options.progress}));
  ModelInfo& info = parts.info;
  const ArchSpec& spec = model->spec();
  info.name = !spec.name.empty() ? spec.name : std::filesystem::path(parts.files->path).stem().string();
  info.architecture = spec.arch;
  info.parameters = count_parameters(*parts.files);
  info.weight_bytes = model->weight_bytes();
  info.step_bytes = model->bytes_per_token();
  info.context = spec.context;
  info.vocab = spec.vocab;
  parts.model = std::move(model);
  return std::shared_ptr<const LanguageModel>(std::move(loaded));
}

const ModelInfo& LanguageModel::info() const { return parts_->info; }

Result<std::vector<TokenId>> LanguageModel::encode(std::string_view text, bool add_special, bool parse_special) const {
  if (!parts_->tokenizer) {
    return Error::unsupported(fmt::format("{}: no tokenizer in the model's files; give token ids instead of text", parts_->files->path));
  }
  return parts_->tokenizer->encode(text, {add_special, parse_special});
}

std::string LanguageModel::decode(const std::vector<TokenId>& tokens, bool skip_special) const {
  return parts_->tokenizer ? parts_->tokenizer->decode(tokens, skip_special) : std::string();
}

}  // namespace millrace
