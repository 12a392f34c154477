// WordPiece (Devlin et al. 2019, BERT): text is cleaned and split into words and single punctuation marks; each word is
// matched greedily with the longest pieces, or becomes unk as a whole. Not lossless. Two spellings of vocabularies are
// supported: "##ing" for pieces inside a word (Hugging Face), and U+2581 before pieces that begin one (GGUF).
#include <algorithm>

#include "base/work_limits.h"
#include "text/tokenizers/base_tokenizer.h"
#include "text/tokenizers/byte_trie.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxWordCharacters = 100;              // longer words are unk, as in BERT
constexpr size_t kMaxWordPieceBytes = 1024;

bool is_han(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_punctuation(uint32_t c) {
  return (char_class_of(c) & kPunct) || (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
         (c >= 123 && c <= 126);
}

class WordPieceTokenizer final : public BaseTokenizer {
 public:
  explicit WordPieceTokenizer(TokenizerSpec spec) : BaseTokenizer(std::move(spec)) {
    size_t hashes = 0, marks = 0;
    for (const std::string& token : spec_.tokens) {
      hashes += token.size() > 2 && token.starts_with("##");
      marks += token.starts_with(kWordMark);
    }
    const bool marked = marks > hashes;
    // BERT vocabularies in GGUF are all uncased; only the name of the pre-tokenizer tells.
    fold_ = spec_.lowercase || spec_.pre == "bert-bge" || spec_.pre.starts_with("jina-");
    strip_accents_ = spec_.strip_accents || fold_;
    for (size_t i = 0; i < spec_.tokens.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      std::string_view text = spec_.tokens[i];
      const bool special = type(id) != TokenType::normal;
      bool inside = false;
      if (marked) {
        inside = !text.starts_with(kWordMark);
        if (!inside) text.remove_prefix(kWordMark.size());
      } else if (text.size() > 2 && text.starts_with("##")) {
        inside = true;
        text.remove_prefix(2);
      }
      if (special) {
        pieces_.push(" " + spec_.tokens[i]);
        continue;
      }
      pieces_.push(inside ? std::string(text) : " " + std::string(text));
      if (!text.empty() && text.size() <= kMaxWordPieceBytes) (inside ? inner_ : first_).insert(text, id);
    }
    add_normalized_tokens();
  }

 protected:
  bool has_space_prefix() const override { return true; }

  void encode_text(std::string_view text, TextForm, std::vector<TokenId>& out) const override {
    std::string word;
    size_t characters = 0;
    const auto flush = [&] {
      if (!word.empty()) encode_word(word, characters, out);
      word.clear();
      characters = 0;
    };
    std::string decomposed;
    if (strip_accents_) {
      decomposed = normalize_unicode(text, NormalForm::nfd);
      text = decomposed;
    }
    size_t read = 0;
    for (size_t pos = 0; pos < text.size();) {
      if (++read % kCharactersPerLook == 0 && work_is_over()) return;
      const CodePoint cp = decode_utf8(text, pos);
      pos += cp.length;
      const uint16_t bits = cp.valid ? char_class_of(cp.value) : uint16_t{kOther};
      if (bits & kSpace) {
        flush();
        continue;
      }
      if (spec_.clean_text && (cp.value == 0 || cp.value == 0xFFFD || is_control_character(cp.value, bits))) continue;
      if (strip_accents_ && is_nonspacing_mark(cp.value)) continue;
      const uint32_t c = fold_ ? to_lower(cp.value) : cp.value;
      const bool alone = is_punctuation(c) || (spec_.split_cjk && is_han(c));
      if (alone) flush();
      append_utf8(word, c);
      ++characters;
      if (alone) flush();
    }
    flush();
  }

  // BERT's normalizer alone; encode_text() may repeat it without a change.
  std::string normalized_form(std::string_view text) const override {
    std::string out, decomposed;
    if (strip_accents_) {
      decomposed = normalize_unicode(text, NormalForm::nfd);
      text = decomposed;
    }
    for (size_t pos = 0; pos < text.size();) {
      const CodePoint cp = decode_utf8(text, pos);
      const std::string_view bytes = text.substr(pos, cp.length);
      pos += cp.length;
      const uint16_t bits = cp.valid ? char_class_of(cp.value) : uint16_t{kOther};
      if (spec_.clean_text && (bits & kSpace)) {
        out += ' ';
        continue;
      }
      if (spec_.clean_text && (cp.value == 0 || cp.value == 0xFFFD || is_control_character(cp.value, bits))) continue;
      if (strip_accents_ && is_nonspacing_mark(cp.value)) continue;
      const bool alone = spec_.split_cjk && is_han(cp.value);
      if (alone) out += ' ';
      if (cp.valid)
        append_utf8(out, fold_ ? to_lower(cp.value) : cp.value);
      else
        out += bytes;
      if (alone) out += ' ';
    }
    return out;
  }

 private:
  static bool is_control_character(uint32_t c, uint16_t bits) { return bits == kOther && c < 0x110000; }
  void encode_word(std::string_view word, size_t characters, std::vector<TokenId>& out) const {
    const size_t first = out.size();
    bool known = characters <= kMaxWordCharacters;
    for (size_t pos = 0; known && pos < word.size();) {
      const ByteTrie::Match match = (pos == 0 ? first_ : inner_).longest_prefix(word.substr(pos));
      known = match.value >= 0;
      if (known) out.push_back(match.value);
      pos += match.length;
    }
    if (known) return;
    out.resize(first);
    if (spec_.unk) out.push_back(*spec_.unk);
  }

  ByteTrie first_, inner_;
  bool fold_ = false, strip_accents_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> create_wordpiece_tokenizer(TokenizerSpec spec) {
  return std::unique_ptr<Tokenizer>(std::make_unique<WordPieceTokenizer>(std::move(spec)));
}

}  // namespace millrace
