#include "loader/hf_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "loader/file_text.h"
#include "loader/json_check.h"
#include "text/tokenizer_files.h"
#include "text/unicode.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxTemplateBytes = size_t{4} << 20;
constexpr size_t kMaxTemplates = 64;

// An optional file; the view is valid as long as `file`.
struct OptionalFile {
  std::shared_ptr<const MappedFile> file;
  std::string path;

  explicit operator bool() const { return file != nullptr; }
  std::string_view text() const {
    if (!file) return {};
    return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
  }
};

Result<OptionalFile> open_optional(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return OptionalFile{};
  MILLRACE_TRY(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  return OptionalFile{std::move(file), path};
}

Result<std::optional<Json>> parse_optional(const fs::path& path) {
  MILLRACE_TRY(OptionalFile file, open_optional(path));
  if (!file) return std::optional<Json>();
  MILLRACE_TRY(Json parsed, parse_json_object(file.text(), file.path, {.bytes = kMaxConfigBytes, .keys = 65536}));
  return std::optional(std::move(parsed));
}

Error in_file(const std::string& path, Error error) {
  error.message = fmt::format("{}: {}", path, error.message);
  return error;
}

std::string text_of(const Json& object, const char* key) {
  auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// vocab.json + merges.txt do not define the pre-tokenizer split; the architecture and the tokenizer's class do.
std::string_view pre_tokenizer_of(const Json& config, const std::optional<Json>& tokenizer_config) {
  std::string type = text_of(config, "model_type");
  std::string tokenizer = tokenizer_config ? text_of(*tokenizer_config, "tokenizer_class") : "";
  if (type.starts_with("qwen") || tokenizer.starts_with("Qwen2")) return "qwen2";
  if (type.starts_with("starcoder")) return "starcoder";
  if (type == "falcon") return "falcon";
  auto size = config.find("vocab_size");
  bool large = size != config.end() && size->is_number_unsigned() && size->get<uint64_t>() >= 128000;
  if (type == "llama" && large) return "llama-bpe";
  return "gpt-2";
}

Result<std::optional<TokenizerSpec>> read_base_tokenizer(const fs::path& folder, const Json& config,
                                                         const std::optional<Json>& tokenizer_config) {
  MILLRACE_TRY(OptionalFile json, open_optional(folder / "tokenizer.json"));
  if (json) {
    auto spec = read_tokenizer_json(json.text());
    if (!spec.ok()) return in_file(json.path, std::move(spec).error());
    return std::optional(std::move(*spec));
  }
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    MILLRACE_TRY(OptionalFile model, open_optional(folder / name));
    if (!model) continue;
    bool tiktoken = sniff_tokenizer_file(model.text()) == "tiktoken";
    auto spec = tiktoken ? read_tiktoken(model.text(), "llama-bpe") : read_sentencepiece_model(model.text());
    if (!spec.ok()) return in_file(model.path, std::move(spec).error());
    return std::optional(std::move(*spec));
  }
  MILLRACE_TRY(OptionalFile vocab, open_optional(folder / "vocab.json"));
  MILLRACE_TRY(OptionalFile merges, open_optional(folder / "merges.txt"));
  if (!vocab || !merges) return std::optional<TokenizerSpec>();
  MILLRACE_TRY(OptionalFile added, open_optional(folder / "added_tokens.json"));
  auto spec = read_vocab_merges(vocab.text(), merges.text(), added.text(), pre_tokenizer_of(config, tokenizer_config));
  if (!spec.ok()) return in_file(vocab.path, std::move(spec).error());
  return std::optional(std::move(*spec));
}

// Applies config.json's bos_token_id and eos_token_id if no other file sets them.
void apply_model_config(TokenizerSpec& spec, const Json& config) {
  auto id_of = [&](const Json& value) -> std::optional<TokenId> {
    bool inside = value.is_number_unsigned() && value.get<uint64_t>() < spec.tokens.size();
    return inside ? std::optional(value.get<TokenId>()) : std::nullopt;
  };
  auto add_eog = [&](TokenId id) {
    if (std::find(spec.eog.begin(), spec.eog.end(), id) == spec.eog.end()) spec.eog.push_back(id);
  };
  auto bos = config.find("bos_token_id");
  if (!spec.bos && bos != config.end()) spec.bos = id_of(*bos);
  auto eos = config.find("eos_token_id");
  if (eos == config.end()) return;
  const Json ids = eos->is_array() ? *eos : Json::array({*eos});
  for (const Json& value : ids) {
    std::optional<TokenId> id = id_of(value);
    if (!id) continue;
    if (!spec.eos) spec.eos = id;
    add_eog(*id);
  }
}

Result<std::string> template_text(const Json& value, const std::string& path) {
  if (!value.is_string()) return Error::corrupt(fmt::format("{}: key 'chat_template': is not a string", path));
  auto text = value.get<std::string>();
  if (text.size() > kMaxTemplateBytes) {
    return Error::corrupt(
        fmt::format("{}: key 'chat_template': {} bytes; at most {} are allowed", path, text.size(), kMaxTemplateBytes));
  }
  return text;
}

Result<void> read_templates_of(ModelFiles& model, const Json& config, const std::string& path) {
  auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  if (!found->is_array()) {
    MILLRACE_TRY(model.chat_template, template_text(*found, path));
    return {};
  }
  if (found->size() > kMaxTemplates)
    return Error::corrupt(fmt::format("{}: key 'chat_template': too many templates", path));
  for (const Json& named : *found) {
    if (!named.is_object() || !named.contains("template") || text_of(named, "name").empty()) {
      return Error::corrupt(fmt::format("{}: key 'chat_template': a template without name or text", path));
    }
    MILLRACE_TRY(std::string text, template_text(named["template"], path));
    std::string name = text_of(named, "name");
    if (name == "default") {
      model.chat_template = std::move(text);
    } else {
      model.named_templates.insert_or_assign(name, std::move(text));
    }
  }
  return {};
}

Result<std::optional<std::string>> read_template_file(const fs::path& path) {
  MILLRACE_TRY(OptionalFile file, open_optional(path));
  if (!file) return std::optional<std::string>();
  if (file.text().size() > kMaxTemplateBytes) {
    return Error::corrupt(
        fmt::format("{}: {} bytes; at most {} are allowed", file.path, file.text().size(), kMaxTemplateBytes));
  }
  if (!is_valid_utf8(file.text())) return Error::corrupt(fmt::format("{}: is not valid UTF-8", file.path));
  return std::optional(std::string(file.text()));
}

Result<void> read_additional_templates(ModelFiles& model, const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {};
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().extension() != ".jinja") continue;
    if (model.named_templates.size() >= kMaxTemplates) {
      return Error::corrupt(fmt::format("{}: too many templates", folder.string()));
    }
    MILLRACE_TRY(std::optional<std::string> text, read_template_file(entry->path()));
    if (text) model.named_templates.insert_or_assign(entry->path().stem().string(), std::move(*text));
  }
  return {};
}

}  // namespace

Result<void> read_huggingface_tokenizer(ModelFiles& model, const fs::path& folder, const Json& config) {
  MILLRACE_TRY(std::optional<Json> tokenizer_config, parse_optional(folder / "tokenizer_config.json"));
  MILLRACE_TRY(model.tokenizer, read_base_tokenizer(folder, config, tokenizer_config));
  if (!model.tokenizer) return {};
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json", "generation_config.json"}) {
    MILLRACE_TRY(OptionalFile file, open_optional(folder / name));
    if (!file) continue;
    auto applied = apply_tokenizer_config(*model.tokenizer, file.text());
    if (!applied.ok()) return in_file(file.path, std::move(applied).error());
  }
  apply_model_config(*model.tokenizer, config);
  infer_end_of_generation(*model.tokenizer);
  return {};
}

Result<void> read_chat_templates(ModelFiles& model, const fs::path& folder) {
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    MILLRACE_TRY(std::optional<Json> config, parse_optional(folder / name));
    if (config) MILLRACE_TRY_VOID(read_templates_of(model, *config, folder / name));
  }
  MILLRACE_TRY(std::optional<std::string> text, read_template_file(folder / "chat_template.jinja"));
  if (text) model.chat_template = std::move(*text);
  return read_additional_templates(model, folder / "additional_chat_templates");
}

Result<void> read_generation_config(ModelFiles& model, const fs::path& folder) {
  MILLRACE_TRY(std::optional<Json> config, parse_optional(folder / "generation_config.json"));
  if (!config) return {};
  auto number = [&](const char* key) -> std::optional<double> {
    auto found = config->find(key);
    return found != config->end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
  };
  GenerationDefaults& defaults = model.generation;
  defaults.temperature = number("temperature");
  defaults.top_p = number("top_p");
  defaults.min_p = number("min_p");
  defaults.repetition_penalty = number("repetition_penalty");
  auto top_k = config->find("top_k");
  if (top_k != config->end() && top_k->is_number_integer()) defaults.top_k = top_k->get<int64_t>();
  return {};
}

}  // namespace millrace
