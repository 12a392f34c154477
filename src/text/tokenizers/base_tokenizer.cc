#include "text/tokenizers/base_tokenizer.h"

#include "base/work_limits.h"
#include "text/unicode.h"
#include "text/work_count.h"

namespace millrace {
namespace {

constexpr const char* kEscapedSpace = "\xE2\x96\x81";  // U+2581

}  // namespace

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  text_work += static_cast<int64_t>(text.size());
  size_t pos = from.empty() ? std::string::npos : text.find(from);
  if (pos == std::string::npos) return;
  std::string out;
  size_t begin = 0;
  for (; pos != std::string::npos; pos = text.find(from, begin)) {
    out.append(text, begin, pos - begin).append(to);
    begin = pos + from.size();
  }
  out.append(text, begin);
  text_work += static_cast<int64_t>(out.size());
  text = std::move(out);
}

int byte_token_value(std::string_view token) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

BaseTokenizer::BaseTokenizer(TokenizerSpec spec) : spec_(std::move(spec)), special_(spec_) {}

std::vector<TokenId> BaseTokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<TokenId> ids;
  const bool wordpiece = spec_.kind == "wordpiece";
  const std::optional<TokenId> begin = wordpiece && spec_.cls ? spec_.cls : spec_.bos;
  const std::optional<TokenId> end = wordpiece && spec_.sep ? spec_.sep : spec_.eos;
  if (options.add_special && spec_.add_bos && begin) ids.push_back(*begin);
  // SentencePiece puts its dummy space before user-defined tokens too; the text after them then gets none.
  bool prefix = true;
  size_t fragments = 0;
  for (const SpecialTokens::Fragment& fragment : special_.split(text, options.parse_special)) {
    if (++fragments % kWordsPerLook == 0 && work_is_over()) break;
    if (fragment.id < 0) {
      encode_fragment(fragment.text, options, prefix, ids);
      continue;
    }
    const bool control = type(fragment.id) != TokenType::user_defined;
    if (prefix && !control && has_space_prefix() && spec_.space_prefix == SpacePrefix::after_control) {
      encode_text({}, {.space_prefix = true}, ids);
    }
    ids.push_back(fragment.id);
    prefix = prefix_after(fragment.id);
  }
  if (options.add_special && (spec_.add_eos || (wordpiece && spec_.add_sep)) && end) ids.push_back(*end);
  return ids;
}

bool BaseTokenizer::prefix_after(TokenId special) const {
  const bool control = type(special) != TokenType::user_defined;
  return spec_.space_prefix == SpacePrefix::after_any || (spec_.space_prefix == SpacePrefix::after_control && control);
}

// Encodes what is left between tokens that are matched in the text itself. `prefix`: in and out, the space prefix
// applies to the next text.
void BaseTokenizer::encode_fragment(std::string_view text, EncodeOptions options, bool& prefix,
                                    std::vector<TokenId>& out) const {
  if (special_.normalized_ids().empty()) {
    encode_text(text, {.space_prefix = prefix}, out);
    prefix = false;
    return;
  }
  std::string normalized = normalized_form(text);
  if (prefix && spec_.prefix_before_match && spec_.add_space_prefix && !text.empty())
    normalized.insert(0, spec_.escape_before_match ? kEscapedSpace : " ");
  for (const SpecialTokens::Fragment& part : special_.split_normalized(normalized, options.parse_special)) {
    if (part.id >= 0) {
      out.push_back(part.id);
      prefix = prefix_after(part.id);
      continue;
    }
    encode_text(part.text, {.space_prefix = prefix && !spec_.prefix_before_match, .normalized = true}, out);
    prefix = false;
  }
}

void BaseTokenizer::add_normalized_tokens() {
  for (const TokenId id : special_.normalized_ids()) {
    std::string text = normalized_form(spec_.tokens[static_cast<size_t>(id)]);
    if (spec_.prefix_before_match && spec_.add_space_prefix)
      text.insert(0, spec_.escape_before_match ? kEscapedSpace : " ");
    special_.add_normalized(id, text, type(id));
  }
}

std::string BaseTokenizer::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  std::string out;
  const bool prefixed = has_space_prefix();
  const bool wordpiece = spec_.kind == "wordpiece";  // joins all words with spaces, special tokens too
  bool strip = prefixed;                             // the next visible piece loses its leading space
  for (TokenId id : ids) {
    if (!in_vocab(id)) continue;
    const bool control = is_control(id);
    const bool special = control || type(id) == TokenType::user_defined;
    if (control && skip_special) {
      if (spec_.space_prefix != SpacePrefix::first && !wordpiece) strip = prefixed;
      continue;
    }
    std::string_view bytes = pieces_[static_cast<size_t>(id)];
    if ((!special || wordpiece) && strip && !bytes.empty()) {
      if (bytes.front() == ' ' && (wordpiece || type(id) != TokenType::unknown)) bytes.remove_prefix(1);
      // If encode() removes extra white space, decoded text cannot begin with any.
      strip = spec_.remove_extra_whitespaces && bytes.empty();
    }
    out.append(bytes);
    if (special && !wordpiece) {
      strip = prefixed && (spec_.space_prefix == SpacePrefix::after_any ||
                           (control && spec_.space_prefix == SpacePrefix::after_control));
    }
  }
  if (prefixed && spec_.whitespace_suffix && !out.empty() && out.back() == ' ') out.pop_back();
  if (spec_.clean_up_spaces) {
    for (const auto& [from, to] : {std::pair{" .", "."},
                                   {" ?", "?"},
                                   {" !", "!"},
                                   {" ,", ","},
                                   {" ' ", "'"},
                                   {" n't", "n't"},
                                   {" 'm", "'m"},
                                   {" 's", "'s"},
                                   {" 've", "'ve"},
                                   {" 're", "'re"}}) {
      replace_all(out, from, to);
    }
  }
  return out;
}

std::string BaseTokenizer::piece(TokenId id) const {
  return in_vocab(id) ? std::string(pieces_[static_cast<size_t>(id)]) : std::string();
}

bool BaseTokenizer::has_normalizer() const {
  return spec_.nfc || spec_.nfkc || spec_.nfd || spec_.nfkd || !spec_.replacements.empty() ||
         (spec_.lowercase && spec_.kind != "wordpiece");
}

std::string BaseTokenizer::normalize(std::string_view text) const {
  std::string out;
  if (spec_.nfc)
    out = normalize_unicode(text, NormalForm::nfc);
  else if (spec_.nfkc)
    out = normalize_unicode(text, NormalForm::nfkc);
  else if (spec_.nfd)
    out = normalize_unicode(text, NormalForm::nfd);
  else if (spec_.nfkd)
    out = normalize_unicode(text, NormalForm::nfkd);
  else
    out = std::string(text);
  if (spec_.lowercase && spec_.kind != "wordpiece") {
    std::string lower;
    for (size_t pos = 0; pos < out.size();) {
      const CodePoint cp = decode_utf8(out, pos);
      if (cp.valid)
        append_utf8(lower, to_lower(cp.value));
      else
        lower += out[pos];
      pos += cp.length;
    }
    out = std::move(lower);
  }
  for (const auto& [from, to] : spec_.replacements) replace_all(out, from, to);
  return out;
}

}  // namespace millrace
