// SentencePiece BPE (Kudo & Richardson 2018, arXiv:1808.06226): no pre-tokenizer, spaces are part of tokens
// (U+2581), characters without a token fall back to <0xNN> byte tokens. Merges are ordered by the score of the
// result, or by an explicit list (Hugging Face and Gemma 4 files).
//
// The whole text is one sequence, but a merge can cross a space only if some token contains that space after another
// character. Splitting at all other spaces gives the same ids, and words that can be cached:
//
//   " Hello world  x"  ->  " Hello" | " world" | "  x"
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/work_limits.h"
#include "text/tokenizers/base_tokenizer.h"
#include "text/tokenizers/pre_tokenizers.h"
#include "text/tokenizers/sentencepiece_normalizer.h"
#include "text/tokenizers/text_index.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr std::string_view kSpmSpace = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxSpmDerivedBytes = 1024;            // as in bpe.cc
constexpr size_t kMaxSpmChunkBytes = size_t{1} << 30;

class SpmTokenizer final : public BaseTokenizer {
 public:
  SpmTokenizer(TokenizerSpec spec, SentencePieceNormalizer normalizer, std::optional<PreTokenizer> pre)
      : BaseTokenizer(std::move(spec)), normalizer_(std::move(normalizer)), pre_(std::move(pre)) {
    plain_text_ = !spec_.remove_extra_whitespaces && spec_.precompiled_charsmap.empty() && !spec_.whitespace_suffix;
    for (size_t i = 0; i < spec_.tokens.size(); ++i) pieces_.push(token_text(static_cast<TokenId>(i)));
  }

  Result<void> build() {
    byte_tokens_.fill(-1);
    ascii_symbols_.fill(-1);
    std::vector<TokenId> known;  // those in ids_
    ids_.reserve(pieces_.size());
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (mergeable(id) && !pieces_[i].empty() && ids_.add(id)) known.push_back(id);
      if (const int byte = byte_of(id); byte >= 0 && byte_tokens_[static_cast<size_t>(byte)] < 0)
        byte_tokens_[static_cast<size_t>(byte)] = id;
    }
    for (const TokenId id : known) note_characters(pieces_[static_cast<size_t>(id)]);
    if (spec_.merges.empty())
      derive_merges(std::move(known));
    else
      MILLRACE_TRY_VOID(read_merges());
    ids_.clear();
    add_normalized_tokens();
    return {};
  }

 protected:
  bool has_space_prefix() const override { return spec_.add_space_prefix; }

  void encode_text(std::string_view text, TextForm form, std::vector<TokenId>& out) const override {
    WorkspacePool::Lease lease = pool_.take();
    Workspace& space = *lease;
    const bool prefix = form.space_prefix && spec_.add_space_prefix;
    std::string& buffer = space.text;
    buffer.clear();
    std::string normalized;
    if (has_normalizer() && !form.normalized) {
      normalized = normalize(text);
      text = normalized;
    }
    if (!plain_text_ && !form.normalized) {
      normalizer_.normalize(text, prefix, buffer);
    } else {
      if (prefix) buffer += ' ';
      buffer.append(text);
    }
    if (spec_.escape_whitespaces) replace_all(buffer, kSpmSpace, " ");
    std::string_view rest = buffer;
    while (rest.size() > kMaxSpmChunkBytes) {
      encode_chunk(rest.substr(0, kMaxSpmChunkBytes), space, out);
      rest.remove_prefix(kMaxSpmChunkBytes);
    }
    encode_chunk(rest, space, out);
  }

  std::string normalized_form(std::string_view text) const override {
    std::string out = normalize(text);
    if (!plain_text_) {
      std::string mapped;
      normalizer_.normalize(out, false, mapped);
      out = std::move(mapped);
    }
    if (spec_.escape_before_match) replace_all(out, " ", kSpmSpace);
    return out;
  }

 private:
  // The byte of a byte token, or -1. A token of another type with such a name is ordinary text.
  int byte_of(TokenId id) const {
    return type(id) == TokenType::byte || type(id) == TokenType::normal
               ? byte_token_value(spec_.tokens[static_cast<size_t>(id)])
               : -1;
  }

  std::string token_text(TokenId id) const {
    const std::string& token = spec_.tokens[static_cast<size_t>(id)];
    if (const int byte = byte_of(id); byte >= 0) return std::string(1, static_cast<char>(byte));
    if (type(id) == TokenType::unknown && !spec_.unk_surface.empty()) return spec_.unk_surface;
    std::string text = token;
    if (spec_.escape_whitespaces) replace_all(text, kSpmSpace, " ");
    return text;
  }

  bool mergeable(TokenId id) const {
    const TokenType t = type(id);
    return (t == TokenType::normal || t == TokenType::unused || t == TokenType::user_defined) && byte_of(id) < 0;
  }

  // Assigns a symbol to every character of a token: its token, or a number above the ids. Also records the characters
  // that a space may follow inside a token.
  void note_characters(std::string_view text) {
    uint32_t before = 0;
    for (size_t pos = 0; pos < text.size();) {
      const CodePoint cp = decode_utf8(text, pos);
      if (cp.valid && symbol_of(cp) < 0) {
        const int32_t token = ids_.find(text.substr(pos, cp.length));
        (cp.value < 128 ? ascii_symbols_[cp.value] : symbols_[cp.value]) = token >= 0 ? token : next_extra_++;
      }
      if (cp.value == ' ' && pos > 0 && before != ' ') {
        if (before < 128) ascii_before_space_[before] = true;
        before_space_.insert(before);
      }
      before = cp.value;
      pos += cp.length;
    }
  }

  // -1: it is in no token.
  int32_t symbol_of(CodePoint cp) const {
    if (!cp.valid) return -1;
    if (cp.value < 128) return ascii_symbols_[cp.value];
    const auto it = symbols_.find(cp.value);
    return it == symbols_.end() ? -1 : it->second;
  }

  int32_t symbol_of(std::string_view text, uint64_t hash) const {
    if (const int32_t token = ids_.find(text, hash); token >= 0 || text.empty()) return token;
    const CodePoint cp = decode_utf8(text, 0);
    return cp.length == text.size() ? symbol_of(cp) : -1;
  }
  int32_t symbol_of(std::string_view text) const { return symbol_of(text, TextIndex::hash(text)); }

  void derive_merges(std::vector<TokenId> order) {
    const auto score = [&](TokenId id) {
      return spec_.scores.empty() ? -static_cast<float>(id) : spec_.scores[static_cast<size_t>(id)];
    };
    const auto before = [&](TokenId a, TokenId b) { return score(a) != score(b) ? score(a) > score(b) : a < b; };
    if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
    struct Merge {
      int32_t left, right;
      uint32_t rank;
      int32_t merged;
    };
    std::vector<Merge> found;
    found.reserve(2 * order.size());  // about as many as vocabularies of languages have
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;  // equal scores: leftmost first
      const std::string_view text = pieces_[static_cast<size_t>(order[i])];
      if (text.size() > kMaxSpmDerivedBytes) continue;
      uint64_t hash = TextIndex::kEmptyHash;  // of what is left of the cut
      for (size_t cut = 1; cut < text.size(); ++cut) {
        hash = TextIndex::extend(hash, text[cut - 1]);
        if ((static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) continue;
        const int32_t left = symbol_of(text.substr(0, cut), hash);
        const int32_t right = left < 0 ? -1 : symbol_of(text.substr(cut));
        if (right < 0) continue;
        found.push_back({left, right, rank, order[i]});
        if (type(order[i]) == TokenType::unused) unmerge_.emplace(order[i], std::pair{left, right});
      }
    }
    merges_.reserve(found.size());
    for (const Merge& merge : found) merges_.add(merge.left, merge.right, merge.rank, merge.merged);
  }

  Result<void> read_merges() {
    std::unordered_map<std::string, int32_t> extra;
    const auto symbol = [&](std::string_view token) {
      std::string text(token);
      if (spec_.escape_whitespaces) replace_all(text, kSpmSpace, " ");
      if (const int32_t known = symbol_of(text); known >= 0) return known;
      // Bytes that are not a character of any token: a symbol used only by merges.
      if (extra.contains(text)) return extra[text];
      extra.emplace(text, next_extra_);
      return next_extra_++;
    };
    uint32_t rank = 0;
    for (const std::string& merge : spec_.merges) {
      // A token may contain a space itself; the pair is the first split into two known tokens.
      size_t space = merge.find(' ', 1);
      size_t cut = space;
      for (; space != std::string::npos && space + 1 < merge.size(); space = merge.find(' ', space + 1)) {
        if (ids_.find(std::string_view(merge).substr(0, space)) >= 0 &&
            ids_.find(std::string_view(merge).substr(space + 1)) >= 0) {
          cut = space;
          break;
        }
      }
      if (cut == std::string::npos || cut + 1 >= merge.size()) {
        return Error::corrupt(
            fmt::format("tokenizer: merge {} is not two tokens with a space between: '{}'", rank, merge.substr(0, 80)));
      }
      const std::string left = merge.substr(0, cut), right = merge.substr(cut + 1);
      const int32_t left_symbol = symbol(left), right_symbol = symbol(right);
      merges_.add(left_symbol, right_symbol, rank++, symbol(left + right));
    }
    return {};
  }

  // True if a token can span the character that ends at `end` and the space there.
  bool space_can_follow(std::string_view text, size_t end) const {
    const auto last = static_cast<uint8_t>(text[end - 1]);
    if (last < 0x80) return ascii_before_space_[last];
    if (before_space_.empty()) return false;
    size_t pos = end - 1;
    while (pos > 0 && end - pos < 4 && (static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80) --pos;
    return before_space_.contains(decode_utf8(text, pos).value);
  }

  void encode_chunk(std::string_view text, Workspace& space, std::vector<TokenId>& out) const {
    if (!pre_) {
      encode_words(text, space, out);
      return;
    }
    std::vector<uint32_t> ends;
    pre_->split(text, ends, space.scratch);
    uint32_t begin = 0;
    for (const uint32_t end : ends) {
      encode_words(text.substr(begin, end - begin), space, out);
      begin = end;
    }
  }

  void encode_words(std::string_view text, Workspace& space, std::vector<TokenId>& out) const {
    size_t begin = 0;
    for (size_t pos = 1; pos < text.size(); ++pos) {
      if (pos % kCharactersPerLook == 0 && work_is_over()) return;
      if (text[pos] != ' ') continue;
      const bool cut = spec_.split_on_space || (text[pos - 1] != ' ' && !space_can_follow(text, pos));
      if (!cut) continue;
      encode_word(text.substr(begin, pos - begin), space, out);
      begin = pos;
    }
    if (begin < text.size()) encode_word(text.substr(begin), space, out);
  }

  void encode_word(std::string_view word, Workspace& space, std::vector<TokenId>& out) const {
    const uint64_t hash = word.size() <= WordCache::kMaxBytes ? WordCache::hash(word) : 0;
    if (space.cache.find(word, hash, out)) return;
    const size_t first = out.size();
    space.pieces.clear();
    for (size_t pos = 0; pos < word.size();) {
      const auto byte = static_cast<uint8_t>(word[pos]);
      if (byte < 0x80) {
        space.pieces.push_back({ascii_symbols_[byte], static_cast<uint32_t>(++pos)});
        continue;
      }
      const CodePoint cp = decode_utf8(word, pos);
      pos += cp.length;
      space.pieces.push_back({symbol_of(cp), static_cast<uint32_t>(pos)});
    }
    merges_.merge(space.pieces, space.merge);
    bool unknown = false;
    uint32_t begin = 0;
    for (const MergePiece& piece : space.pieces) {
      unknown |= !emit(word.substr(begin, piece.end - begin), piece.symbol, out);
      begin = piece.end;
    }
    // A run of unknown characters fuses across words, so its ids do not depend on the word alone.
    if (!unknown) space.cache.put(word, hash, out.data() + first, out.size() - first);
  }

  // Returns false if it emitted an unk.
  bool emit(std::string_view text, int32_t symbol, std::vector<TokenId>& out) const {
    if (symbol >= 0 && in_vocab(symbol)) {
      const auto parts = unmerge_.find(symbol);
      if (parts == unmerge_.end()) {
        out.push_back(symbol);
        return true;
      }
      // An unused token is split again; the parts are shorter, so this terminates.
      const size_t cut = piece_bytes(parts->second.first, text);
      const bool left = emit(text.substr(0, cut), parts->second.first, out);
      return emit(text.substr(cut), parts->second.second, out) && left;
    }
    if (spec_.byte_fallback && emit_bytes(text, out)) return true;
    if (spec_.unk && !(spec_.fuse_unk && !out.empty() && out.back() == *spec_.unk)) out.push_back(*spec_.unk);
    return false;
  }

  size_t piece_bytes(int32_t symbol, std::string_view text) const {
    if (in_vocab(symbol)) return std::min(pieces_[static_cast<size_t>(symbol)].size(), text.size());
    return decode_utf8(text, 0).length;
  }

  bool emit_bytes(std::string_view text, std::vector<TokenId>& out) const {
    for (char c : text) {
      if (byte_tokens_[static_cast<uint8_t>(c)] < 0) return false;
    }
    for (char c : text) out.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
    return true;
  }

  SentencePieceNormalizer normalizer_;
  std::optional<PreTokenizer> pre_;
  bool plain_text_ = true;
  TextIndex ids_{pieces_};                         // only while building
  std::unordered_map<uint32_t, int32_t> symbols_;  // by code point, from 128 on
  std::array<int32_t, 128> ascii_symbols_{};
  std::array<bool, 128> ascii_before_space_{};
  std::unordered_set<uint32_t> before_space_;
  std::unordered_map<int32_t, std::pair<int32_t, int32_t>> unmerge_;
  std::array<int32_t, 256> byte_tokens_{};
  int32_t next_extra_ = static_cast<int32_t>(spec_.tokens.size());
  MergeTable merges_;
  mutable WorkspacePool pool_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> create_spm_tokenizer(TokenizerSpec spec) {
  MILLRACE_TRY(SentencePieceNormalizer normalizer, SentencePieceNormalizer::create(spec));
  std::optional<PreTokenizer> pre;
  // GGUF says "default" for every SentencePiece model, so only explicit patterns matter here.
  if (!spec.pre_patterns.empty()) {
    MILLRACE_TRY(PreTokenizer made, PreTokenizer::from_patterns(spec.pre_patterns));
    pre = std::move(made);
  } else if (spec.pre == "gemma4") {
    MILLRACE_TRY(PreTokenizer made, PreTokenizer::from_name(spec.pre));
    pre = std::move(made);
  }
  auto tokenizer = std::make_unique<SpmTokenizer>(std::move(spec), std::move(normalizer), std::move(pre));
  MILLRACE_TRY_VOID(tokenizer->build());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace millrace
