// TokenizerSpec -> tokenizer.json (Hugging Face tokenizers), tokenizer_config.json.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "models/convert/tokenizer_writer.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/pre_tokenizers.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581

TokenType type_of(const TokenizerSpec& spec, size_t id) {
  return id < spec.types.size() ? spec.types[id] : TokenType::normal;
}

std::string dump(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json added_tokens(const TokenizerSpec& spec) {
  Json list = Json::array();
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const TokenType type = type_of(spec, i);
    const bool unknown = type == TokenType::unknown;
    if (type != TokenType::control && type != TokenType::user_defined && !unknown) continue;
    AddedTokenFlags flags;
    for (const AddedTokenFlags& f : spec.added_flags)
      if (f.id == static_cast<TokenId>(i)) flags = f;
    list.push_back({{"id", i},
                    {"content", spec.tokens[i]},
                    {"single_word", flags.single_word},
                    {"lstrip", flags.lstrip},
                    {"rstrip", flags.rstrip},
                    // The normalizer written for spm has a Prepend, after which a token matches behind a space only.
                    {"normalized", flags.normalized && (spec.kind != "spm" || spec.prefix_before_match)},
                    {"special", type != TokenType::user_defined}});
  }
  return list;
}

// Vocabularies are appended without lookup: an ordered object searches key by key.
Json vocabulary(const TokenizerSpec& spec) {
  Json vocab = Json::object();
  auto& object = vocab.get_ref<Json::object_t&>();
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.tokens[i].empty() || type_of(spec, i) == TokenType::unused) continue;
    object.std::vector<Json::object_t::value_type>::emplace_back(spec.tokens[i], i);
  }
  return vocab;
}

Json normalizer_of(const TokenizerSpec& spec) {
  Json list = Json::array();
  if (spec.nfc) list.push_back({{"type", "NFC"}});
  if (spec.nfd) list.push_back({{"type", "NFD"}});
  if (spec.nfkc) list.push_back({{"type", "NFKC"}});
  if (spec.nfkd) list.push_back({{"type", "NFKD"}});
  for (const auto& [from, to] : spec.replacements)
    list.push_back({{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}});
  if (spec.kind == "spm") {
    if (spec.add_space_prefix) list.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    list.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
  }
  if (list.empty()) return nullptr;
  return Json{{"type", "Sequence"}, {"normalizers", std::move(list)}};
}

Result<Json> pre_tokenizer_of(const TokenizerSpec& spec) {
  if (spec.kind == "spm") return Json(nullptr);
  Json list = Json::array();
  std::vector<std::string> patterns = spec.pre_patterns;
  if (patterns.empty()) {
    for (std::string_view pattern : pre_tokenizer_patterns(spec.pre)) patterns.emplace_back(pattern);
    if (patterns.empty()) return Error::unsupported(fmt::format("tokenizer: unknown pre-tokenizer '{}'", spec.pre));
  }
  for (const std::string& pattern : patterns) {
    list.push_back({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  list.push_back({{"type", "ByteLevel"},
                  {"add_prefix_space", spec.byte_level_space_prefix},
                  {"trim_offsets", true},
                  {"use_regex", false}});
  return Json{{"type", "Sequence"}, {"pretokenizers", std::move(list)}};
}

Json post_processor_of(const TokenizerSpec& spec) {
  const bool first = spec.add_bos && spec.bos, last = spec.add_eos && spec.eos;
  if (!first && !last) return nullptr;
  Json single = Json::array(), special = Json::object();
  auto name = [&](TokenId id) { return spec.tokens[static_cast<size_t>(id)]; };
  auto add = [&](TokenId id) {
    single.push_back({{"SpecialToken", {{"id", name(id)}, {"type_id", 0}}}});
    special[name(id)] = {{"id", name(id)}, {"ids", Json::array({id})}, {"tokens", Json::array({name(id)})}};
  };
  if (first) add(*spec.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (last) add(*spec.eos);
  Json pair = single;
  for (const Json& step : single) {
    Json second = step;
    second[second.begin().key()]["type_id"] = 1;
    if (second.contains("Sequence")) second["Sequence"]["id"] = "B";
    pair.push_back(std::move(second));
  }
  return Json{{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

Json decoder_of(const TokenizerSpec& spec) {
  if (spec.kind == "bpe")
    return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  Json list = Json::array();
  list.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}});
  list.push_back({{"type", "ByteFallback"}});
  list.push_back({{"type", "Fuse"}});
  if (spec.add_space_prefix) list.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(list)}};
}

std::string tokenizer_class(const TokenizerSpec& spec, bool sentencepiece) {
  if (!sentencepiece) return "PreTrainedTokenizerFast";
  return spec.kind == "spm" ? "LlamaTokenizer" : "T5Tokenizer";
}

std::string write_tokenizer_config(const TokenizerSpec& spec, const ModelFiles& model, int64_t context,
                                   bool sentencepiece) {
  Json config;
  config["add_bos_token"] = spec.add_bos;
  config["add_eos_token"] = spec.add_eos;
  if (spec.kind == "spm") config["add_prefix_space"] = spec.add_space_prefix;
  if (spec.kind == "bpe") config["add_prefix_space"] = spec.byte_level_space_prefix;
  Json decoder = Json::object();
  for (Json& token : added_tokens(spec)) {
    const std::string id = std::to_string(token["id"].get<int64_t>());
    token.erase("id");
    decoder.get_ref<Json::object_t&>().std::vector<Json::object_t::value_type>::emplace_back(id, std::move(token));
  }
  config["added_tokens_decoder"] = std::move(decoder);
  const std::pair<const char*, std::optional<TokenId>> named[] = {
      {"bos_token", spec.bos}, {"eos_token", spec.eos}, {"unk_token", spec.unk}, {"pad_token", spec.pad}};
  for (const auto& [key, id] : named)
    if (id && *id >= 0 && static_cast<size_t>(*id) < spec.tokens.size())
      config[key] = spec.tokens[static_cast<size_t>(*id)];
  if (model.named_templates.empty()) {
    if (!model.chat_template.empty()) config["chat_template"] = model.chat_template;
  } else {
    auto& list = config["chat_template"] = Json::array();
    if (!model.chat_template.empty()) list.push_back({{"name", "default"}, {"template", model.chat_template}});
    for (const auto& [name, text] : model.named_templates) list.push_back({{"name", name}, {"template", text}});
  }
  config["clean_up_tokenization_spaces"] = false;
  if (sentencepiece && spec.kind == "spm") config["legacy"] = true;  // spaces as in SentencePiece itself
  config["model_max_length"] = context;
  config["tokenizer_class"] = tokenizer_class(spec, sentencepiece);
  return dump(config);
}

}  // namespace

Result<std::string> write_tokenizer_json(const TokenizerSpec& spec) {
  Json root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = added_tokens(spec);
  root["normalizer"] = normalizer_of(spec);
  MILLRACE_TRY(root["pre_tokenizer"], pre_tokenizer_of(spec));
  root["post_processor"] = post_processor_of(spec);
  root["decoder"] = decoder_of(spec);
  const bool bytes = spec.kind == "spm";
  Json model;
  model["type"] = "BPE";
  model["dropout"] = nullptr;
  model["unk_token"] = spec.unk ? Json(spec.tokens[static_cast<size_t>(*spec.unk)]) : Json(nullptr);
  model["continuing_subword_prefix"] = nullptr;
  model["end_of_word_suffix"] = nullptr;
  model["fuse_unk"] = bytes && spec.fuse_unk;
  model["byte_fallback"] = bytes && spec.byte_fallback;
  model["ignore_merges"] = spec.ignore_merges;
  model["vocab"] = vocabulary(spec);
  model["merges"] = bytes ? spec.merges : derive_merges(spec);
  root["model"] = std::move(model);
  return root.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::vector<TextFile>> write_huggingface_tokenizer(const TokenizerSpec& spec, const ModelFiles& model,
                                                          int64_t context) {
  std::vector<TextFile> files;
  const bool sentencepiece = spec.kind == "unigram" || (spec.kind == "spm" && spec.merges.empty());
  if (sentencepiece) {
    files.push_back({"tokenizer.model", write_sentencepiece_model(spec)});
  } else if (spec.kind == "bpe" || spec.kind == "spm") {
    MILLRACE_TRY(std::string json, write_tokenizer_json(spec));
    files.push_back({"tokenizer.json", std::move(json)});
  } else {
    return Error::unsupported(
        fmt::format("tokenizer: kind '{}' cannot be written into a Hugging Face folder", spec.kind));
  }
  files.push_back({"tokenizer_config.json", write_tokenizer_config(spec, model, context, sentencepiece)});
  return files;
}

}  // namespace millrace
