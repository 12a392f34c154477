// Byte-level BPE (GPT-2, Radford et al. 2019): words from the pre-tokenizer, bytes merged by rank. Without merges in
// the spec the ids are the ranks, as in tiktoken: any two neighbours whose concatenation is a token may merge, lower
// ids first. Lossless if all 256 byte tokens exist.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/work_limits.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/base_tokenizer.h"
#include "text/tokenizers/pre_tokenizers.h"
#include "text/tokenizers/text_index.h"
#include "text/unicode.h"

namespace millrace {
namespace {

// Longer tokens get no derived merges and match only as whole words: trying every split is quadratic in the length.
constexpr size_t kMaxDerivedBytes = 1024;
constexpr size_t kMaxChunkBytes = size_t{1} << 30;  // keeps offsets inside 32 bits

// The bytes of a token: special tokens are stored verbatim, the others in the byte spelling.
std::string token_bytes(const TokenizerSpec& spec, size_t id) {
  const TokenType type = spec.types.empty() ? TokenType::normal : spec.types[id];
  std::string bytes;
  const bool spelled = type == TokenType::normal || type == TokenType::unused || type == TokenType::byte;
  return spelled && append_unspelled(spec.tokens[id], bytes) ? bytes : spec.tokens[id];
}

bool mergeable(const TokenizerSpec& spec, size_t id) {
  return !spec.tokens[id].empty() &&
         (spec.types.empty() || spec.types[id] == TokenType::normal || spec.types[id] == TokenType::unused);
}

// Calls found(left, right) for every split of `bytes` into two known texts.
template <typename Found>
void for_each_cut(std::string_view bytes, const TextIndex& ids, Found found) {
  if (bytes.size() > kMaxDerivedBytes) return;
  uint64_t hash = TextIndex::kEmptyHash;  // of what is left of the cut
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    hash = TextIndex::extend(hash, bytes[cut - 1]);
    const TokenId left = ids.find(bytes.substr(0, cut), hash);
    if (left < 0) continue;
    const TokenId right = ids.find(bytes.substr(cut));
    if (right >= 0) found(left, right);
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
    by_bytes_.reserve(pieces_.size());
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (!mergeable(spec_, i)) continue;
      const auto id = static_cast<TokenId>(i);
      by_bytes_.add(id);
      if (pieces_[i].size() == 1) {
        int32_t& symbol = byte_symbols_[static_cast<uint8_t>(pieces_[i][0])];
        if (symbol < 0) symbol = id;
      }
    }
    if (spec_.merges.empty()) {
      for (size_t i = 0; i < pieces_.size(); ++i) {
        if (!mergeable(spec_, i)) continue;
        for_each_cut(pieces_[i], by_bytes_, [&](TokenId left, TokenId right) {
          merges_.add(left, right, static_cast<uint32_t>(i), by_bytes_.find(pieces_[i]));
        });
      }
    } else {
      MILLRACE_TRY_VOID(read_merges());
    }
    whole_words_ = spec_.ignore_merges || takes_words_whole(spec_.pre);
    if (!whole_words_) by_bytes_.clear();
    add_normalized_tokens();
    return {};
  }

 protected:
  void encode_text(std::string_view text, TextForm form, std::vector<TokenId>& out) const override {
    WorkspacePool::Lease lease = pool_.take();
    Workspace& space = *lease;
    const bool add_space = form.space_prefix && spec_.byte_level_space_prefix && !text.empty() && text.front() != ' ';
    const bool unnormalized = has_normalizer() && !form.normalized;
    if (unnormalized || add_space) {
      std::string owned = add_space ? " " : "";
      owned += unnormalized ? normalize(text) : std::string(text);
      encode_chunks(owned, space, out);
    } else {
      encode_chunks(text, space, out);
    }
  }

 private:
  // Strings that occur in merges but not in the vocabulary get symbols above the ids; they are emitted as bytes.
  int32_t symbol_of(std::string_view bytes, uint64_t hash, std::unordered_map<std::string, int32_t>& extra) const {
    if (const TokenId known = by_bytes_.find(bytes, hash); known >= 0) return known;
    const auto next = static_cast<int32_t>(spec_.tokens.size() + extra.size());
    return extra.emplace(bytes, next).first->second;
  }

  Result<void> read_merges() {
    std::unordered_map<std::string, int32_t> extra;
    merges_.reserve(spec_.merges.size());
    uint32_t rank = 0;
    std::string both, verbatim;
    for (const std::string& merge : spec_.merges) {
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 >= merge.size()) {
        return Error::corrupt(
            fmt::format("tokenizer: merge {} is not two tokens with a space between: '{}'", rank, merge.substr(0, 80)));
      }
      // Each part's bytes, or what is written if that spells no bytes.
      const std::string_view written = merge;
      both.clear();
      const bool left_spelled = append_unspelled(written.substr(0, space), both);
      if (!left_spelled) both.append(written, 0, space);
      const size_t cut = both.size();
      const bool right_spelled = append_unspelled(written.substr(space + 1), both);
      if (!right_spelled) both.append(written, space + 1);
      const std::string_view left = std::string_view(both).substr(0, cut), right = std::string_view(both).substr(cut);
      const uint64_t left_hash = TextIndex::hash(left);
      const int32_t left_symbol = symbol_of(left, left_hash, extra);
      const int32_t right_symbol = symbol_of(right, TextIndex::hash(right), extra);
      std::string_view merged = both;
      uint64_t merged_hash = TextIndex::hash(right, left_hash);
      if (left_spelled != right_spelled) {  // the two together spell no bytes
        verbatim.assign(written, 0, space).append(written, space + 1);
        merged = verbatim;
        merged_hash = TextIndex::hash(verbatim);
      }
      merges_.add(left_symbol, right_symbol, rank++, symbol_of(merged, merged_hash, extra));
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
    for (size_t i = 0; i < space.ends.size(); ++i) {
      if (i % kWordsPerLook == 0 && work_is_over()) return;
      const uint32_t end = space.ends[i];
      encode_word(text.substr(begin, end - begin), space, out);
      begin = end;
    }
  }

  void encode_word(std::string_view word, Workspace& space, std::vector<TokenId>& out) const {
    const uint64_t hash = word.size() <= WordCache::kMaxBytes ? WordCache::hash(word) : 0;
    if (space.cache.find(word, hash, out)) return;
    const size_t first = out.size();
    if (whole_words_) {
      if (const TokenId id = by_bytes_.find(word); id >= 0) out.push_back(id);
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
  TextIndex by_bytes_{pieces_};  // filled only for whole_words_
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
  PackedStrings bytes;
  for (size_t i = 0; i < spec.tokens.size(); ++i) bytes.push(token_bytes(spec, i));
  TextIndex ids(bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (mergeable(spec, i)) ids.add(static_cast<TokenId>(i));
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
