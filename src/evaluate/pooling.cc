#include "evaluate/pooling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/enum_table.h"
#include "base/ordered_json.h"
#include "loader/model_folder.h"
#include "models/arch.h"
#include "models/ranking_head.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool is_encoder(const ModelFiles& files) {
  const auto spec = read_arch_spec(files);
  return spec.ok() && spec->encoder;
}

constexpr EnumNames<Pooling> kNames("none", "mean", "cls", "last");

// For files that do not say: a decoder's last token has seen the whole text. An encoder's tokens all have.
Pooling default_pooling(const ModelFiles& files) { return is_encoder(files) ? Pooling::mean : Pooling::last; }

Result<Pooling> from_gguf(const ModelFiles& files) {
  const std::string key = files.architecture + ".pooling_type";
  const auto found = files.config->find(key);
  if (found == files.config->end()) return default_pooling(files);
  if (!found->is_number_integer()) return Error::corrupt(fmt::format("{}: {} is not an integer", files.path, key));
  switch (found->get<int64_t>()) {  // frozen: llama.cpp's
    case 0: return Pooling::none;
    case 1: return Pooling::mean;
    case 2: return Pooling::cls;
    case 3: return Pooling::last;
    // The CLS token, or a decoder's last token; a ranking head's own choice is RankingHead::row().
    case kRankPooling: return is_encoder(files) ? Pooling::cls : Pooling::last;
    default: return Error::unsupported(fmt::format("{}: unknown {} {}", files.path, key, found->dump()));
  }
}

Result<Pooling> from_folder(const ModelFiles& files) {
  const fs::path path = model_folder(files.path) / "1_Pooling" / "config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return default_pooling(files);
  MILLRACE_TRY(const Json config, read_json_object(path, {.bytes = 1 << 20}));
  const std::pair<const char*, Pooling> modes[] = {{"pooling_mode_mean_tokens", Pooling::mean},
                                                   {"pooling_mode_cls_token", Pooling::cls},
                                                   {"pooling_mode_lasttoken", Pooling::last}};
  std::optional<Pooling> out;
  for (const auto& [key, value] : config.items()) {
    if (!key.starts_with("pooling_mode_") || !value.is_boolean() || !value.get<bool>()) continue;
    const auto* mode = std::ranges::find(modes, key, [](const auto& one) { return std::string_view(one.first); });
    if (mode == std::end(modes) || out)
      return Error::unsupported(
          fmt::format("{}: {} is not supported; supported: mean, cls or last token, not combined", path.string(), key));
    out = mode->second;
  }
  return out.value_or(default_pooling(files));
}

}  // namespace

const char* pooling_name(Pooling pooling) { return kNames[pooling]; }

std::optional<Pooling> find_pooling(std::string_view name) { return kNames.find(name); }

Result<Pooling> model_pooling(const ModelFiles& files) {
  return files.kind == ModelFiles::Kind::gguf ? from_gguf(files) : from_folder(files);
}

void normalize(std::vector<float>& values) {
  double squares = 0;
  for (float value : values) squares += static_cast<double>(value) * value;
  if (!(squares > 0)) return;
  const double scale = 1 / std::sqrt(squares);
  for (float& value : values) value = static_cast<float>(value * scale);
}

Result<int64_t> gguf_pooling_type(const ModelFiles& files) {
  if (files.kind == ModelFiles::Kind::huggingface && files.architecture.ends_with("ForSequenceClassification"))
    return kRankPooling;
  MILLRACE_TRY(const Pooling pooling, model_pooling(files));
  switch (pooling) {  // frozen: llama.cpp's
    case Pooling::none: return 0;
    case Pooling::mean: return 1;
    case Pooling::cls: return 2;
    case Pooling::last: return 3;
  }
  return 0;
}

}  // namespace millrace
