#include "text/detokenizer.h"

#include <algorithm>

#include "text/tools/reasoning.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Longest prefix of text[pos..] that could still begin a well-formed character, at least 1.
size_t maximal_invalid_part(std::string_view text, size_t pos) {
  for (size_t length = std::min<size_t>(3, text.size() - pos); length > 1; --length) {
    if (incomplete_utf8_suffix(text.substr(pos, length)) == length) return length;
  }
  return 1;
}

void append_repaired(std::string_view text, std::string& out) {
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint cp = decode_utf8(text, pos);
    if (cp.valid) {
      out.append(text.substr(pos, cp.length));
      pos += cp.length;
    } else {
      out.append(kReplacement);
      pos += maximal_invalid_part(text, pos);
    }
  }
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_.append(bytes);
  const size_t keep = incomplete_utf8_suffix(held_);
  std::string out;
  append_repaired(std::string_view(held_).substr(0, held_.size() - keep), out);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string Utf8Stream::flush() {
  std::string out;
  append_repaired(held_, out);
  held_.clear();
  return out;
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options)
    : tokenizer_(&tokenizer), options_(options) {
  const TokenizerSpec& spec = tokenizer.spec();
  const bool prefixed = spec.kind == "spm" || spec.kind == "unigram";
  strip_space_ = options.at_start && ((prefixed && spec.add_space_prefix) || spec.kind == "wordpiece");
}

std::string Detokenizer::push(TokenId id) {
  if (id < 0 || id >= tokenizer_->vocab_size()) return {};
  const bool control = tokenizer_->is_control(id);
  if (control && options_.skip_special && !options_.markers) return {};
  std::string piece = tokenizer_->piece(id);
  if (control && options_.skip_special && !is_marker(piece)) return {};
  if (strip_space_ && !control && !piece.empty()) {
    if (piece.front() == ' ') piece.erase(0, 1);
    strip_space_ = false;
  }
  return utf8_.push(piece);
}

}  // namespace millrace
