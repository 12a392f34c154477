#include "run/documents/link_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "formats/format.h"
#include "loader/gguf_model.h"
#include "loader/hf_weights.h"

namespace millrace {
namespace {

constexpr int64_t kMaxDocumentsOfPrompt = 1024;  // as a request to the server may have
constexpr const char* kOption = "context kvlink: link_embeddings";

Result<ModelFiles> open_rows(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored) && !path.ends_with(".safetensors")) return open_gguf(path);
  ModelFiles files;
  files.kind = ModelFiles::Kind::huggingface;
  files.path = path;
  MILLRACE_TRY_VOID(open_safetensors_weights(files, path));
  return files;
}

// Null: there is none.
const StoredTensor* embeddings_of(const ModelFiles& files) {
  if (files.tensors.size() == 1) return &files.tensors.front();
  const auto found = std::ranges::find_if(files.tensors, [](const StoredTensor& one) {
    return one.name == "token_embd.weight" || one.name == "embed_tokens.weight" ||
           one.name.ends_with(".embed_tokens.weight");
  });
  return found == files.tensors.end() ? nullptr : &*found;
}

Result<void> check_rows(const StoredTensor& stored, const LinkRowsChoice& choice, int64_t width) {
  const Tensor& tensor = stored.tensor;
  if (!tensor.format || !stored.scales.values.empty())
    return Error::unsupported(fmt::format("{}: tensor {} of {} has type {}; store rows of floats", kOption, stored.name,
                                          choice.path, stored.type_name));
  if (tensor.rank != 2 || tensor.cols() != width)
    return Error::user(fmt::format("{}: tensor {} of {} has rows of {} values; the model's are {} wide", kOption,
                                   stored.name, choice.path, tensor.cols(), width));
  if (tensor.rows() - choice.first < choice.each)
    return Error::user(fmt::format("{}: tensor {} of {} has {} rows; one document needs rows {} to {}", kOption,
                                   stored.name, choice.path, tensor.rows(), choice.first,
                                   choice.first + choice.each - 1));
  return {};
}

}  // namespace

Result<std::unique_ptr<const LinkRows>> LinkRows::load(const LinkRowsChoice& choice, int64_t width,
                                                       std::shared_ptr<MemoryAccounts> accounts) {
  MILLRACE_TRY(const ModelFiles files, open_rows(choice.path));
  const StoredTensor* const stored = embeddings_of(files);
  if (!stored)
    return Error::user(fmt::format(
        "{}: {} has no embeddings: it needs a single tensor, or one called embed_tokens.weight or token_embd.weight",
        kOption, choice.path));
  MILLRACE_TRY_VOID(check_rows(*stored, choice, width));
  const Tensor& tensor = stored->tensor;
  const int64_t documents = std::min((tensor.rows() - choice.first) / choice.each, kMaxDocumentsOfPrompt);
  auto made = std::make_unique<LinkRows>();
  made->choice_ = choice;
  MILLRACE_TRY(made->memory_, MemoryHold::take(std::move(accounts), "link embeddings",
                                               documents * choice.each * width * int64_t{sizeof(float)},
                                               "give fewer rows, or raise the budget"));
  for (int64_t document = 0; document < documents; ++document) {
    std::vector<float> rows(static_cast<size_t>(choice.each * width));
    for (int64_t i = 0; i < choice.each; ++i)
      tensor.format->decode(tensor.data + (choice.first + document * choice.each + i) * tensor.format->row_bytes(width),
                            rows.data() + i * width, width);
    if (!std::ranges::all_of(rows, [](float value) { return std::isfinite(value); }))
      return Error::corrupt(fmt::format("{}: tensor {} of {}: the rows of document {} hold NaN or infinity", kOption,
                                        stored->name, choice.path, document));
    made->rows_.push_back(std::make_shared<const std::vector<float>>(std::move(rows)));
  }
  return std::unique_ptr<const LinkRows>(std::move(made));
}

Result<void> LinkRows::put(const LinkRowsChoice& choice, Request& request) const {
  if (choice != choice_)
    return Error::user(
        fmt::format("{}: the engine has read {} rows a document of {}, from row {} on; a request takes these", kOption,
                    choice_.each, choice_.path, choice_.first));
  if (request.documents.size() > rows_.size())
    return Error::user(fmt::format("{}: {} has rows for {} documents, the prompt has {}", kOption, choice_.path,
                                   rows_.size(), request.documents.size()));
  for (size_t i = 0; i < request.documents.size(); ++i)
    request.embeddings.push_back({request.documents[i].end, rows_[i]});
  return {};
}

}  // namespace millrace
