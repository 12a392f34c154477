// Reads tokenizer.json of Hugging Face tokenizers. The format is a serialized pipeline: normalizer, pre_tokenizer,
// model, post_processor, decoder, added_tokens. Pipelines are mapped to the four algorithms of this module; a component
// that would change ids and has no counterpart is reported as unsupported, by name.
#include <fmt/format.h>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "text/files/base64.h"
#include "text/files/spec_builder.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/base_tokenizer.h"
#include "text/tokenizers/pre_tokenizers.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr int kMaxNesting = 16;

Error not_supported(std::string_view what, std::string_view value) {
  return Error::unsupported(fmt::format("tokenizer.json: {} is not supported: {}", what, value.substr(0, 120)));
}

// Calls visit(component) for a component, or recursively for each member of a Sequence under `list_key`.
template <typename Visit>
Result<void> for_each_component(const json* node, const char* list_key, int depth, Visit visit) {
  if (node == nullptr || node->is_null()) return {};
  if (!node->is_object() || depth > kMaxNesting)
    return Error::corrupt(fmt::format("tokenizer.json: {} is not a pipeline", list_key));
  if (json_string(*node, "type") != "Sequence") return visit(*node);
  const json* list = json_find(*node, list_key);
  if (list == nullptr || !list->is_array())
    return Error::corrupt(fmt::format("tokenizer.json: Sequence has no {}", list_key));
  for (const json& member : *list) MILLRACE_TRY_VOID(for_each_component(&member, list_key, depth + 1, visit));
  return {};
}

bool has_component(const json& root, const char* stage, const char* list_key, std::string_view type) {
  bool found = false;
  (void)for_each_component(json_find(root, stage), list_key, 0, [&](const json& node) -> Result<void> {
    found |= json_string(node, "type") == type;
    return {};
  });
  return found;
}

std::string quote_literal(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}/#- \t\n").find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' ? 'n' : c == '\t' ? 't' : c;
  }
  return out;
}

Result<void> read_normalizer(const json& node, TokenizerSpec& spec) {
  const std::string type = json_string(node, "type");
  if (type == "NFC")
    spec.nfc = true;
  else if (type == "NFKC")
    spec.nfkc = true;
  else if (type == "NFD")
    spec.nfd = true;
  else if (type == "NFKD")
    spec.nfkd = true;
  else if (type == "Lowercase")
    spec.lowercase = true;
  else if (type == "ByteLevel")
    return {};
  else if (type == "Strip" && spec.kind == "unigram")
    spec.remove_extra_whitespaces = true;
  else if (type == "StripAccents" && spec.kind == "wordpiece")
    spec.strip_accents = true;
  else if (type == "BertNormalizer") {
    spec.lowercase = json_bool(node, "lowercase", true);
    spec.strip_accents = json_bool(node, "strip_accents", spec.lowercase);
    spec.clean_text = json_bool(node, "clean_text", true);
    spec.split_cjk = json_bool(node, "handle_chinese_chars", true);
  } else if (type == "Prepend") {
    if (json_string(node, "prepend") != kSpaceMark) return not_supported("Prepend of", json_string(node, "prepend"));
    spec.add_space_prefix = true;
    spec.space_prefix = SpacePrefix::after_any;
    spec.prefix_before_match = true;
  } else if (type == "Replace") {
    const json* pattern = json_find(node, "pattern");
    const std::string content = json_string(node, "content");
    const std::string literal = pattern ? json_string(*pattern, "String") : std::string();
    const std::string regex = pattern ? json_string(*pattern, "Regex") : std::string();
    if (literal == " " && content == kSpaceMark)
      spec.escape_whitespaces = spec.escape_before_match = true;
    else if (regex == " {2,}" && spec.kind == "unigram")
      spec.remove_extra_whitespaces = true;
    else if (!literal.empty())
      spec.replacements.emplace_back(literal, content);
    else
      return not_supported("Replace normalizer with the pattern", regex);
  } else if (type == "Precompiled") {
    const std::string encoded = json_string(node, "precompiled_charsmap");
    if (!decode_base64(encoded, spec.precompiled_charsmap))
      return Error::corrupt("tokenizer.json: precompiled_charsmap is not base64");
  } else {
    return not_supported("normalizer", type);
  }
  return {};
}

Result<void> read_split(const json& node, TokenizerSpec& spec) {
  const json* pattern = json_find(node, "pattern");
  const std::string behavior = json_string(node, "behavior");
  const std::string literal = pattern ? json_string(*pattern, "String") : std::string();
  const std::string regex = pattern ? json_string(*pattern, "Regex") : std::string();
  if (literal.empty() && regex.empty()) return Error::corrupt("tokenizer.json: Split has no pattern");
  // Spaces have already become U+2581, so there is nothing to split at (Gemma).
  if (literal == " " && spec.kind == "spm" && spec.escape_whitespaces) return {};
  // "Removed, inverted" keeps the matches and drops the rest, which is empty for the patterns in use.
  const bool keeps_matches = behavior == "Removed" && json_bool(node, "invert", false);
  if (behavior != "Isolated" && !keeps_matches) return not_supported("Split behavior", behavior);
  spec.pre_patterns.push_back(literal.empty() ? regex : quote_literal(literal));
  return {};
}

Result<void> read_pre_tokenizer(const json& node, TokenizerSpec& spec) {
  const std::string type = json_string(node, "type");
  if (type == "ByteLevel") {
    if (json_bool(node, "use_regex", true)) spec.pre_patterns.emplace_back(pre_tokenizer_patterns("gpt-2").front());
    spec.byte_level_space_prefix |= json_bool(node, "add_prefix_space", true);
    return {};
  }
  if (type == "Split") return read_split(node, spec);
  if (type == "Digits") {
    spec.pre_patterns.emplace_back(json_bool(node, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
    return {};
  }
  if (type == "Punctuation") {
    const std::string behavior = json_string(node, "behavior", "Isolated");
    if (behavior == "Contiguous")
      spec.pre_patterns.emplace_back(pre_tokenizer_patterns("falcon").front());
    else if (behavior == "Isolated")
      spec.pre_patterns.emplace_back(R"([\p{P}\$\+<=>\^~\|`])");
    else
      return not_supported("Punctuation behavior", behavior);
    return {};
  }
  if (type == "Metaspace" && (spec.kind == "spm" || spec.kind == "unigram")) {
    if (json_string(node, "replacement", kSpaceMark) != kSpaceMark)
      return not_supported("Metaspace replacement", json_string(node, "replacement"));
    const std::string scheme =
        json_string(node, "prepend_scheme", json_bool(node, "add_prefix_space", true) ? "always" : "never");
    spec.escape_whitespaces = true;
    spec.add_space_prefix = scheme != "never";
    spec.space_prefix = scheme == "first" ? SpacePrefix::first : SpacePrefix::after_any;
    spec.split_on_space = json_bool(node, "split", true);
    return {};
  }
  if (type == "WhitespaceSplit" && spec.kind == "unigram") {
    spec.remove_extra_whitespaces = spec.split_at_whitespace = true;
    return {};
  }
  if ((type == "BertPreTokenizer" || type == "Whitespace" || type == "WhitespaceSplit") && spec.kind == "wordpiece")
    return {};
  return not_supported("pre_tokenizer", type);
}

Result<void> read_merges(const json& model, TokenizerSpec& spec) {
  const json* merges = json_find(model, "merges");
  if (merges == nullptr || !merges->is_array()) return Error::corrupt("tokenizer.json: BPE model has no merges");
  spec.merges.reserve(merges->size());
  for (const json& merge : *merges) {
    if (merge.is_string()) {
      spec.merges.push_back(merge.get_ref<const std::string&>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.push_back(merge[0].get_ref<const std::string&>() + " " + merge[1].get_ref<const std::string&>());
    } else {
      return Error::corrupt(fmt::format("tokenizer.json: merge {} is not a pair of tokens", spec.merges.size()));
    }
  }
  return {};
}

Result<void> read_vocabulary(const json& model, TokenizerSpec& spec, SpecBuilder& builder) {
  const json* vocab = json_find(model, "vocab");
  if (spec.kind == "unigram") {
    if (vocab == nullptr || !vocab->is_array())
      return Error::corrupt("tokenizer.json: Unigram model has no vocab list");
    for (const json& entry : *vocab) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
        return Error::corrupt(fmt::format("tokenizer.json: vocab entry {} is not [text, score]", spec.scores.size()));
      }
      const auto id = static_cast<int64_t>(spec.scores.size());
      spec.scores.push_back(entry[1].get<float>());
      MILLRACE_TRY_VOID(builder.place(entry[0].get_ref<const std::string&>(), id));
    }
    return {};
  }
  if (vocab == nullptr || !vocab->is_object()) return Error::corrupt("tokenizer.json: model has no vocab object");
  builder.expect(vocab->size());
  for (const auto& [text, id] : vocab->items()) {
    if (!id.is_number_integer())
      return Error::corrupt(fmt::format("tokenizer.json: id of token '{}' is not an integer", text.substr(0, 60)));
    const bool huge = id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX;
    MILLRACE_TRY_VOID(builder.place(text, huge ? INT64_MAX : id.get<int64_t>()));
  }
  return {};
}

Result<void> read_added_tokens(const json& root, TokenizerSpec& spec, SpecBuilder& builder) {
  const json* added = json_find(root, "added_tokens");
  if (added == nullptr || !added->is_array()) return {};
  for (const json& token : *added) {
    const std::string content = json_string(token, "content");
    if (content.empty()) return Error::corrupt("tokenizer.json: added token without content");
    const int64_t id = json_int(token, "id", -1);
    MILLRACE_TRY_VOID(builder.place_special(content, id, json_bool(token, "special", false)));
    set_added_flags(token, static_cast<TokenId>(id), spec);
  }
  return {};
}

// Special tokens between the two texts of a pair.
int64_t separators(const json& node) {
  const json* pair = json_find(node, "pair");
  if (pair == nullptr || !pair->is_array()) return 0;
  int64_t texts = 0, count = 0;
  for (const json& step : *pair) {
    texts += json_find(step, "Sequence") != nullptr;
    count += texts == 1 && json_find(step, "SpecialToken");
  }
  return count;
}

Result<void> read_post_processor(const json& node, TokenizerSpec& spec, const SpecBuilder& builder) {
  const std::string type = json_string(node, "type");
  std::string first, last;
  if (type == "TemplateProcessing") {
    spec.add_sep = separators(node) > 1;
    const json* single = json_find(node, "single");
    if (single == nullptr || !single->is_array()) return {};
    bool text_seen = false;
    for (const json& step : *single) {
      if (json_find(step, "Sequence")) text_seen = true;
      const json* special = json_find(step, "SpecialToken");
      if (special == nullptr) continue;
      std::string& slot = text_seen ? last : first;
      if (!slot.empty())
        return not_supported("post_processor with several tokens on one side", json_string(*special, "id"));
      slot = json_string(*special, "id");
    }
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    spec.add_sep = type == "RobertaProcessing";
    const json* cls = json_find(node, "cls");
    const json* sep = json_find(node, "sep");
    if (cls && cls->is_array() && !cls->empty() && (*cls)[0].is_string())
      first = (*cls)[0].get_ref<const std::string&>();
    if (sep && sep->is_array() && !sep->empty() && (*sep)[0].is_string())
      last = (*sep)[0].get_ref<const std::string&>();
  }
  const bool bert = spec.kind == "wordpiece";
  if (const auto id = builder.find(first)) {
    spec.bos = id;
    spec.add_bos = true;
    if (bert) spec.cls = id;
  }
  if (const auto id = builder.find(last)) {
    spec.eos = id;
    spec.add_eos = true;
    if (bert || spec.add_sep) spec.sep = id;
  }
  return {};
}

std::string kind_of(const json& root, const json& model) {
  std::string type = json_string(model, "type");
  const json* vocab = json_find(model, "vocab");
  if (type.empty()) type = json_find(model, "merges") ? "BPE" : vocab && vocab->is_array() ? "Unigram" : "WordPiece";
  if (type == "Unigram") return "unigram";
  if (type == "WordPiece") return "wordpiece";
  if (type != "BPE") return {};
  const bool bytes = has_component(root, "pre_tokenizer", "pretokenizers", "ByteLevel") ||
                     has_component(root, "normalizer", "normalizers", "ByteLevel") ||
                     has_component(root, "decoder", "decoders", "ByteLevel");
  return bytes ? "bpe" : "spm";
}

Result<TokenizerSpec> read(const json& root) {
  const json* model = json_find(root, "model");
  if (model == nullptr || !model->is_object()) return Error::corrupt("tokenizer.json: model is missing");
  TokenizerSpec spec;
  spec.kind = kind_of(root, *model);
  if (spec.kind.empty()) return not_supported("model", json_string(*model, "type"));
  for (const char* affix : {"end_of_word_suffix", "continuing_subword_prefix"}) {
    const std::string value = json_string(*model, affix);
    if (!value.empty() && !(spec.kind == "wordpiece" && value == "##")) return not_supported(affix, value);
  }
  spec.add_space_prefix = false;
  spec.escape_whitespaces = false;
  spec.byte_fallback = json_bool(*model, "byte_fallback", false);
  spec.fuse_unk = json_bool(*model, "fuse_unk", spec.kind == "unigram");
  spec.ignore_merges = json_bool(*model, "ignore_merges", false);
  SpecBuilder builder(spec);
  MILLRACE_TRY_VOID(read_vocabulary(*model, spec, builder));
  if (spec.kind == "bpe" || spec.kind == "spm") MILLRACE_TRY_VOID(read_merges(*model, spec));
  MILLRACE_TRY_VOID(for_each_component(json_find(root, "normalizer"), "normalizers", 0,
                                       [&](const json& node) { return read_normalizer(node, spec); }));
  MILLRACE_TRY_VOID(for_each_component(json_find(root, "pre_tokenizer"), "pretokenizers", 0,
                                       [&](const json& node) { return read_pre_tokenizer(node, spec); }));
  MILLRACE_TRY_VOID(read_added_tokens(root, spec, builder));
  if (spec.kind == "bpe" && spec.pre_patterns.empty()) spec.pre_patterns.emplace_back("(?s:.)+");
  if (spec.byte_fallback) {
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      if (spec.types[i] == TokenType::normal && byte_token_value(spec.tokens[i]) >= 0) spec.types[i] = TokenType::byte;
    }
  }
  spec.unk = builder.find(json_string(*model, "unk_token"));
  const int64_t unk_id = json_int(*model, "unk_id", -1);
  if (unk_id >= 0 && static_cast<uint64_t>(unk_id) < spec.tokens.size()) spec.unk = static_cast<TokenId>(unk_id);
  if (spec.unk) spec.types[static_cast<size_t>(*spec.unk)] = TokenType::unknown;
  MILLRACE_TRY_VOID(for_each_component(json_find(root, "post_processor"), "processors", 0,
                                       [&](const json& node) { return read_post_processor(node, spec, builder); }));
  const json* decoder = json_find(root, "decoder");
  if (spec.kind == "wordpiece" && decoder) spec.clean_up_spaces = json_bool(*decoder, "cleanup", false);
  builder.finish();
  if (!spec.scores.empty()) spec.scores.resize(spec.tokens.size(), 0.0f);
  infer_end_of_generation(spec);
  return spec;
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(std::string_view text) {
  const json root = parse_json<json>(text);
  if (root.is_discarded()) return Error::corrupt("tokenizer.json: not valid JSON");
  return read(root);
}

}  // namespace millrace
