// Applies tokenizer_config.json, special_tokens_map.json and generation_config.json to a TokenizerSpec, infers the
// end-of-generation tokens, and detects the format of a tokenizer file.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "text/files/base64.h"
#include "text/files/spec_builder.h"
#include "text/tokenizer_files.h"

namespace millrace {
namespace {

using nlohmann::json;

Result<void> read_added_decoder(const json& added, TokenizerSpec& spec, SpecBuilder& builder) {
  if (!added.is_object()) return {};
  builder.expect(spec.tokens.size() + added.size());
  for (const auto& [key, token] : added.items()) {
    int64_t id = -1;
    const char* end = key.data() + key.size();
    if (std::from_chars(key.data(), end, id).ptr != end) {
      return Error::corrupt(
          fmt::format("tokenizer_config.json: id of an added token is not a number: '{}'", key.substr(0, 40)));
    }
    const std::string content = json_string(token, "content");
    if (content.empty()) continue;
    // A listed unk token keeps its type.
    const bool is_unknown = id >= 0 && static_cast<size_t>(id) < spec.types.size() &&
                            spec.types[static_cast<size_t>(id)] == TokenType::unknown;
    MILLRACE_TRY_VOID(builder.place_special(content, id, json_bool(token, "special", false)));
    if (is_unknown) spec.types[static_cast<size_t>(id)] = TokenType::unknown;
    set_added_flags(token, static_cast<TokenId>(id), spec);
  }
  return {};
}

void mark_control(TokenizerSpec& spec, TokenId id) {
  TokenType& type = spec.types[static_cast<size_t>(id)];
  if (type != TokenType::unknown) type = TokenType::control;
}

void read_named_tokens(const json& root, TokenizerSpec& spec, const SpecBuilder& builder) {
  const std::pair<const char*, std::optional<TokenId>*> named[] = {
      {"bos_token", &spec.bos}, {"eos_token", &spec.eos},   {"pad_token", &spec.pad}, {"sep_token", &spec.sep},
      {"cls_token", &spec.cls}, {"mask_token", &spec.mask}, {"unk_token", &spec.unk}};
  for (const auto& [key, slot] : named) {
    const auto id = builder.find(json_token(root, key));
    if (!id) continue;
    *slot = id;
    if (slot != &spec.unk) mark_control(spec, *id);
  }
  const json* more = json_find(root, "additional_special_tokens");
  if (more == nullptr || !more->is_array()) return;
  for (const json& token : *more) {
    const auto id =
        builder.find(token.is_string() ? token.get_ref<const std::string&>() : json_string(token, "content"));
    if (id) mark_control(spec, *id);
  }
}

void read_eos_ids(const json& root, TokenizerSpec& spec) {
  const json* ids = json_find(root, "eos_token_id");
  if (ids == nullptr) return;
  const auto add = [&](const json& value) {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX)) return;
    const int64_t id = value.get<int64_t>();
    if (id < 0 || static_cast<size_t>(id) >= spec.tokens.size()) return;
    if (!spec.eos) spec.eos = static_cast<TokenId>(id);
    if (std::find(spec.eog.begin(), spec.eog.end(), id) == spec.eog.end()) spec.eog.push_back(static_cast<TokenId>(id));
  };
  if (!ids->is_array()) return add(*ids);
  for (const json& id : *ids) add(id);
}

}  // namespace

Result<void> apply_tokenizer_config(TokenizerSpec& spec, std::string_view text) {
  const json root = parse_json<json>(text);
  if (root.is_discarded() || !root.is_object()) return Error::corrupt("tokenizer_config.json: not a JSON object");
  SpecBuilder builder(spec);
  if (const json* added = json_find(root, "added_tokens_decoder")) {
    MILLRACE_TRY_VOID(read_added_decoder(*added, spec, builder));
  }
  builder.finish();
  read_named_tokens(root, spec, builder);
  read_eos_ids(root, spec);
  spec.add_bos = json_bool(root, "add_bos_token", spec.add_bos) && (spec.bos || spec.cls);
  spec.add_eos = json_bool(root, "add_eos_token", spec.add_eos) && (spec.eos || spec.sep);
  if (spec.kind == "wordpiece") {
    spec.lowercase = json_bool(root, "do_lower_case", spec.lowercase);
    spec.strip_accents = json_bool(root, "strip_accents", spec.strip_accents || spec.lowercase);
    // WordPiece only: for other kinds the clean-up would change text that the model wrote.
    spec.clean_up_spaces = json_bool(root, "clean_up_tokenization_spaces", spec.clean_up_spaces);
  } else if (spec.kind == "bpe") {
    spec.byte_level_space_prefix = json_bool(root, "add_prefix_space", spec.byte_level_space_prefix);
  } else if (spec.kind == "spm") {
    spec.add_space_prefix = json_bool(root, "add_prefix_space", spec.add_space_prefix);
  }
  infer_end_of_generation(spec);
  return {};
}

void infer_end_of_generation(TokenizerSpec& spec) {
  const auto add = [&](TokenId id) {
    if (std::find(spec.eog.begin(), spec.eog.end(), id) == spec.eog.end()) spec.eog.push_back(id);
  };
  constexpr std::string_view kEnds[] = {"<|eot_id|>",
                                        "<|eom_id|>",
                                        "<|im_end|>",
                                        "<|end|>",
                                        "<end_of_turn>",
                                        "<turn|>",
                                        "<|endoftext|>",
                                        "<|end_of_text|>",
                                        "<|end_of_turn|>",
                                        "<EOT>",
                                        "<|EOT|>",
                                        "<|eot|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<\xEF\xBD\x9C"
                                        "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                        "_<EOT>"};
  // With channels (gpt-oss), <|end|> ends one of several messages, not the turn.
  const bool in_channels = std::find(spec.tokens.begin(), spec.tokens.end(), "<|channel|>") != spec.tokens.end();
  for (size_t i = 0; i < spec.types.size() && i < spec.tokens.size(); ++i) {
    if (in_channels && spec.tokens[i] == "<|end|>") continue;
    const bool ends = spec.types[i] == TokenType::control &&
                      std::find(std::begin(kEnds), std::end(kEnds), spec.tokens[i]) != std::end(kEnds);
    if (!ends) continue;
    const auto id = static_cast<TokenId>(i);
    add(id);
    const std::string& text = spec.tokens[i];
    if (!spec.eot && (text == "<|eot_id|>" || text == "<|im_end|>" || text == "<end_of_turn>" || text == "<|end|>"))
      spec.eot = id;
    if (!spec.eom && text == "<|eom_id|>") spec.eom = id;
  }
  if (spec.eos) add(*spec.eos);
  if (spec.eot) add(*spec.eot);
  if (spec.eom) add(*spec.eom);
}

std::string_view sniff_tokenizer_file(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && bytes[first] == '{') return "tokenizer.json";
  // A SentencePiece file begins with a piece: tag 0x0A, its size, then tag 0x0A of its text.
  if (bytes.size() > 4 && bytes[0] == 0x0A && (bytes[2] == 0x0A || (static_cast<uint8_t>(bytes[1]) & 0x80)))
    return "sentencepiece";
  const std::string_view line = bytes.substr(0, std::min(bytes.find('\n'), bytes.size()));
  const size_t space = line.find(' ');
  std::vector<uint8_t> token;
  if (space != std::string_view::npos && space > 0 && line.size() > space + 1 &&
      decode_base64(line.substr(0, space), token) &&
      line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos) {
    return "tiktoken";
  }
  if (bytes.size() > 16 && bytes[1] == 0 && bytes[2] == 0 && bytes[3] == 0) return "llama2c";
  return {};
}

}  // namespace millrace
