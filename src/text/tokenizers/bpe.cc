// Byte-level BPE (GPT-2, Radford et al. 2019): words from the pre-tokenizer, bytes merged by rank. Without merges in
// the spec the ids are the ranks, as in tiktoken: any two neighbours whose concatenation is a token may merge, lower
// ids first. Lossless if all 256 byte tokens exist.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "text/tokenizer_files.h"
#include "text/tokenizers/base_tokenizer.h"
#include "text/tokenizers/pre_tokenizers.h"
#include "text/unicode.h"

namespace millrace {
namespace {

// Longer tokens get no derived merges and match only as whole words: trying every split is quadratic in the length.
constexpr size_t kMaxDerivedBytes = 1024;
constexpr size_t kMaxChunkBytes = size_t{1} << 30;  // keeps offsets inside 32 bits

using IdByText = std::unordered_map<std::string_view, TokenId>;

// The bytes of a token: special tokens are stored verbatim, the others in the byte spelling.
std::string token_bytes(const TokenizerSpec& spec, size_t id) {
  const TokenType type = spec.types.empty() ? TokenType::normal : spec.types[id];
  if (type == TokenType::normal || type == TokenType::unused || type == TokenType::byte) {
    if (auto bytes = unspell_bytes(spec.tokens[id])) return *std::move(bytes);
  }
  return spec.tokens[id];
}

bool mergeable(const TokenizerSpec& spec, size_t id) {
  return !spec.tokens[id].empty() &&
         (spec.types.empty() || spec.types[id] == TokenType::normal || spec.types[id] == TokenType::unused);
}

// Calls found(left, right) for every split of `bytes` into two known texts.
template <typename Found>
void for_each_cut(std::string_view bytes, const IdByText& ids, Found found) {
  if (bytes.size() > kMaxDerivedBytes) return;
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    const auto left = ids.find(bytes.substr(0, cut));
    if (left == ids.end()) continue;
    const auto right = ids.find(bytes.substr(cut));
    if (right != ids.end()) found(left->second, right->second);
  }
}

// GGUF has no key for ignore_merges: the pre-tokenizer's name implies it.
bool takes_words_whole(std::string_view pre) {
  constexpr std::string_view kNames[] = {"llama3",  "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
                                         "pixtral", "midm-2.0", "lfm2",      "tekken"};
  return std::find(std::begin(kNames), std::end(kNames), pre) != std::end(kNames);
}

class BpeTokenizer final : public BaseTokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, PreTokenizer pre) : BaseTokenizer(std::move(spec)), pre_(std::move(pre)) {
    for (size_t i = 0; i < spec_.tokens.size(); ++i) pieces_.push(token_bytes(spec_, i));
  }

  Result<void> build() {
    byte_symbols_.fill(-1);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (!mergeable(spec_, i)) continue;
      const auto id = static_cast<TokenId>(i);
      by_bytes_.emplace(pieces_[i], id);
      if (pieces_[i].size() == 1) {
        int32_t& symbol = byte_symbols_[static_cast<uint8_t>(pieces_[i][0])];
        if (symbol < 0) symbol = id;
      }
    }
    if (spec_.merges.empty()) {
      for (size_t i = 0; i < pieces_.size(); ++i) {
        if (!mergeable(spec_, i)) continue;
        for_each_cut(pieces_[i], by_bytes_, [&](TokenId left, TokenId right) {
          merges_.add(left, right, static_cast<uint32_t>(i), by_bytes_.at(pieces_[i]));
        });
      }
    } else {
      MILLRACE_TRY_VOID(read_merges());
    }
    whole_words_ = spec_.ignore_merges || takes_words_whole(spec_.pre);
    if (!whole_words_) by_bytes_.clear();
    return {};
  }

 protected:
  void encode_text(std::string_view text, bool space_prefix, std::vector<TokenId>& out) const override {
    WorkspacePool::Lease lease = pool_.take();
    Workspace& space = *lease;
    const bool add_space = space_prefix && spec_.byte_level_space_prefix && !text.empty() && text.front() != ' ';
    if (has_normalizer() || add_space) {
      std::string owned = add_space ? " " : "";
      owned += has_normalizer() ? normalize(text) : std::string(text);
      encode_chunks(owned, space, out);
    } else {
      encode_chunks(text, space, out);
    }
  }

 private:
  // Strings that occur in merges but not in the vocabulary get symbols above the ids; they are emitted as bytes.
  int32_t symbol_of(std::string_view spelled, std::unordered_map<std::string, int32_t>& extra) const {
    const auto bytes = unspell_bytes(spelled);
    const std::string text = bytes ? *bytes : std::string(spelled);
    if (const auto it = by_bytes_.find(text); it != by_bytes_.end()) return it->second;
    const auto next = static_cast<int32_t>(spec_.tokens.size() + extra.size());
    return extra.emplace(text, next).first->second;
  }

  Result<void> read_merges() {
    std::unordered_map<std::string, int32_t> extra;
    merges_.reserve(spec_.merges.size());
    uint32_t rank = 0;
    for (const std::string& merge : spec_.merges) {
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 >= merge.size()) {
        return Error::corrupt(
            fmt::format("tokenizer: merge {} is not two tokens with a space between: '{}'", rank, merge.substr(0, 80)));
      }
      const std::string_view left = std::string_view(merge).substr(0, space);
      const std::string_view right = std::string_view(merge).substr(space + 1);
      const int32_t left_symbol = symbol_of(left, extra);
      const int32_t right_symbol = symbol_of(right, extra);
      merges_.add(left_symbol, right_symbol, rank++, symbol_of(std::string(left).append(right), extra));
    }
    return {};
  }

  void encode_chunks(std::string_view text, Workspace& space, std::vector<TokenId>& out) const {
    while (text.size() > kMaxChunkBytes) {
      size_t cut = kMaxChunkBytes;
      while ((static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80 && cut > kMaxChunkBytes - 3) --cut;
      encode_words(text.substr(0, cut), space, out);
      text.remove_prefix(cut);
    }
    encode_words(text, space, out);
  }

  void encode_words(std::string_view text, Workspace& space, std::vector<TokenId>& out) const {
    pre_.split(text, space.ends, space.scratch);
    out.reserve(out.size() + space.ends.size() + space.ends.size() / 4);
    uint32_t begin = 0;
    for (const uint32_t end : space.ends) {
      encode_word(text.substr(begin, end - begin), space, out);
      begin = end;
    }
  }

  void encode_word(std::string_view word, Workspace& space, std::vector<TokenId>& out) const {
    const uint64_t hash = word.size() <= WordCache::kMaxBytes ? WordCache::hash(word) : 0;
    if (space.cache.find(word, hash, out)) return;
    const size_t first = out.size();
    if (whole_words_) {
      if (const auto it = by_bytes_.find(word); it != by_bytes_.end()) out.push_back(it->second);
    }
    if (out.size() == first) {
      space.pieces.clear();
      for (size_t i = 0; i < word.size(); ++i) {
        space.pieces.push_back({byte_symbols_[static_cast<uint8_t>(word[i])], static_cast<uint32_t>(i + 1)});
      }
      merges_.merge(space.pieces, space.merge);
      uint32_t begin = 0;
      for (const MergePiece& piece : space.pieces) {
        emit(word.substr(begin, piece.end - begin), piece.symbol, out);
        begin = piece.end;
      }
    }
    space.cache.put(word, hash, out.data() + first, out.size() - first);
  }

  void emit(std::string_view bytes, int32_t symbol, std::vector<TokenId>& out) const {
    if (symbol >= 0 && in_vocab(symbol)) {
      out.push_back(symbol);
      return;
    }
    for (char c : bytes) {
      const int32_t byte = byte_symbols_[static_cast<uint8_t>(c)];
      if (byte >= 0)
        out.push_back(byte);
      else if (spec_.unk)
        out.push_back(*spec_.unk);
    }
  }

  PreTokenizer pre_;
  MergeTable merges_;
  IdByText by_bytes_;  // views into pieces_; filled only for whole_words_
  std::array<int32_t, 256> byte_symbols_{};
  bool whole_words_ = false;
  mutable WorkspacePool pool_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> create_bpe_tokenizer(TokenizerSpec spec) {
  MILLRACE_TRY(PreTokenizer pre, spec.pre_patterns.empty() ? PreTokenizer::from_name(spec.pre)
                                                           : PreTokenizer::from_patterns(spec.pre_patterns));
  auto tokenizer = std::make_unique<BpeTokenizer>(std::move(spec), std::move(pre));
  MILLRACE_TRY_VOID(tokenizer->build());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

std::vector<std::string> derive_merges(const TokenizerSpec& spec) {
  if (!spec.merges.empty() || spec.kind != "bpe") return spec.merges;
  std::vector<std::string> bytes(spec.tokens.size());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = token_bytes(spec, i);
  IdByText ids;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (mergeable(spec, i)) ids.emplace(bytes[i], static_cast<TokenId>(i));
  }
  std::vector<std::string> merges;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!mergeable(spec, i)) continue;
    std::vector<std::pair<TokenId, TokenId>> cuts;
    for_each_cut(bytes[i], ids, [&](TokenId left, TokenId right) { cuts.emplace_back(left, right); });
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [left, right] : cuts) {
      merges.push_back(spec.tokens[static_cast<size_t>(left)] + " " + spec.tokens[static_cast<size_t>(right)]);
    }
  }
  return merges;
}

}  // namespace millrace
