// SentencePiece unigram (Kudo 2018, arXiv:1804.10959): the segmentation with the highest sum of token scores,
// by the Viterbi algorithm over a trie of the tokens, one step per character. Ties depend on rounding, so sums are
// rounded as in the reference implementation: candidates are double sums, the best of a position is stored as float.
#include <algorithm>
#include <array>
#include <limits>

#include "base/work_limits.h"
#include "text/tokenizers/base_tokenizer.h"
#include "text/tokenizers/sentencepiece_normalizer.h"
#include "text/unicode.h"
#include "text/work_count.h"

namespace millrace {
namespace {

constexpr std::string_view kUnigramSpace = "\xE2\x96\x81";  // U+2581
constexpr float kUnkPenalty = 10.0f;                        // below the worst token, as in SentencePiece
constexpr size_t kMaxUnigramTokenBytes = 1024;              // longer tokens are never chosen; bounds work per character
constexpr size_t kChunkBytes = 1 << 22;                     // Viterbi restarts at a space beyond this much text

class UnigramTokenizer final : public BaseTokenizer {
 public:
  UnigramTokenizer(TokenizerSpec spec, SentencePieceNormalizer normalizer)
      : BaseTokenizer(std::move(spec)), normalizer_(std::move(normalizer)) {
    byte_tokens_.fill(-1);
    float lowest = std::numeric_limits<float>::max(), highest = std::numeric_limits<float>::lowest();
    for (size_t i = 0; i < spec_.tokens.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const int byte = byte_token_value(spec_.tokens[i]);
      const bool is_byte = byte >= 0 && (type(id) == TokenType::byte || type(id) == TokenType::normal);
      std::string text = is_byte ? std::string(1, static_cast<char>(byte)) : spec_.tokens[i];
      if (type(id) == TokenType::unknown && !spec_.unk_surface.empty())
        text = spec_.unk_surface;
      else if (spec_.escape_whitespaces)
        replace_all(text, kUnigramSpace, " ");
      if (is_byte && byte_tokens_[static_cast<size_t>(byte)] < 0) byte_tokens_[static_cast<size_t>(byte)] = id;
      pieces_.push(text);
      if (type(id) == TokenType::normal && !(spec_.unk && *spec_.unk == id)) {
        lowest = std::min(lowest, score(id));
        highest = std::max(highest, score(id));
      }
      const bool candidate = type(id) == TokenType::normal || type(id) == TokenType::user_defined;
      if (candidate && !is_byte && !text.empty() && text.size() <= kMaxUnigramTokenBytes &&
          !(spec_.unk && *spec_.unk == id)) {
        trie_.insert(text, id);
      }
    }
    unk_score_ = (lowest > highest ? 0.0f : lowest) - kUnkPenalty;
    highest_score_ = lowest > highest ? 0.0f : highest;
    add_normalized_tokens();
  }

 protected:
  bool has_space_prefix() const override { return spec_.add_space_prefix || spec_.remove_extra_whitespaces; }

  void encode_text(std::string_view text, TextForm form, std::vector<TokenId>& out) const override {
    std::string buffer, normalized;
    if (has_normalizer() && !form.normalized) {
      normalized = normalize(text);
      text = normalized;
    }
    const bool prefix = form.space_prefix && spec_.add_space_prefix;
    if (form.normalized && !spec_.split_at_whitespace) {
      if (prefix && !text.empty()) buffer += ' ';
      buffer.append(text);
    } else {
      normalizer_.normalize(text, prefix, buffer);
    }
    if (spec_.escape_whitespaces) replace_all(buffer, kUnigramSpace, " ");
    std::string_view rest = buffer;
    while (!rest.empty()) {
      size_t cut = rest.size();
      if (cut > kChunkBytes) cut = std::min(rest.find(' ', kChunkBytes), rest.size());
      best_segmentation(rest.substr(0, cut), out);
      rest.remove_prefix(cut);
    }
  }

  std::string normalized_form(std::string_view text) const override {
    std::string out;
    normalizer_.normalize(normalize(text), false, out);
    if (spec_.escape_before_match) replace_all(out, " ", kUnigramSpace);
    return out;
  }

 private:
  struct Node {
    int32_t id = -1;
    uint32_t start = 0;
    float score = 0;
    bool reached = false;
  };

  float score(TokenId id) const { return spec_.scores.empty() ? 0.0f : spec_.scores[static_cast<size_t>(id)]; }

  void best_segmentation(std::string_view text, std::vector<TokenId>& out) const {
    std::vector<Node> best(text.size() + 1);  // best[i]: the best segmentation ending at byte i
    size_t characters = 0;
    for (size_t start = 0; start < text.size();) {
      if (++characters % kCharactersPerLook == 0 && work_is_over()) return;
      const float here = best[start].score;
      const CodePoint character = decode_utf8(text, start);
      bool whole_character = false;  // some token is exactly this character
      const auto offer = [&](size_t end, int32_t id, double candidate) {
        Node& node = best[end];
        if (node.reached && !(candidate > static_cast<double>(node.score))) return;
        node = {id, static_cast<uint32_t>(start), static_cast<float>(candidate), true};
      };
      uint32_t at = 0;
      size_t end = start;
      while (end < text.size()) {
        const int64_t next = trie_.child(at, static_cast<uint8_t>(text[end++]));
        if (next < 0) break;
        at = static_cast<uint32_t>(next);
        const int32_t id = trie_.value(at);
        if (id < 0) continue;
        if (type(id) == TokenType::user_defined) {
          const float length = static_cast<float>(end - start);
          offer(end, id, length * highest_score_ - 0.1 + here);
        } else {
          offer(end, id, static_cast<double>(score(id)) + here);
        }
        whole_character |= end - start == character.length;
      }
      text_work += static_cast<int64_t>(end - start);
      if (!whole_character) offer(start + character.length, -1, static_cast<double>(unk_score_ + here));
      start += character.length;
    }
    std::vector<std::pair<uint32_t, uint32_t>> path;  // [start, end), last one first
    for (size_t end = text.size(); end > 0; end = best[end].start) path.emplace_back(best[end].start, end);
    for (auto it = path.rbegin(); it != path.rend(); ++it) {
      const int32_t id = best[it->second].id;
      if (id >= 0)
        out.push_back(id);
      else
        emit_unknown(text.substr(it->first, it->second - it->first), out);
    }
  }

  void emit_unknown(std::string_view text, std::vector<TokenId>& out) const {
    bool bytes = spec_.byte_fallback;
    for (char c : text) bytes &= byte_tokens_[static_cast<uint8_t>(c)] >= 0;
    if (bytes) {
      for (char c : text) out.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
    } else if (spec_.unk && !(spec_.fuse_unk && !out.empty() && out.back() == *spec_.unk)) {
      out.push_back(*spec_.unk);
    }
  }

  SentencePieceNormalizer normalizer_;
  ByteTrie trie_;
  std::array<int32_t, 256> byte_tokens_{};
  float unk_score_ = 0, highest_score_ = 0;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> create_unigram_tokenizer(TokenizerSpec spec) {
  MILLRACE_TRY(SentencePieceNormalizer normalizer, SentencePieceNormalizer::create(spec));
  return std::unique_ptr<Tokenizer>(std::make_unique<UnigramTokenizer>(std::move(spec), std::move(normalizer)));
}

}  // namespace millrace
