// BaseTokenizer: the base class of all algorithms. It handles special tokens, BOS and EOS, the bytes of each token, and
// decoding. Subclasses implement encode_text() for a fragment without special tokens. With WordCache and Workspace, the
// merging tokenizers reuse results and memory between calls; encoded tokens do not depend on them.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizers/merge_table.h"
#include "text/tokenizers/packed_strings.h"
#include "text/tokenizers/special_tokens.h"

namespace millrace {

// Number of words or characters that are encoded between two calls of work_is_over().
constexpr size_t kWordsPerLook = 1024, kCharactersPerLook = 4096;

// Maps words to ids. The cache is direct-mapped, with one cache line per entry; a collision overwrites the entry. Long
// words are not cached.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 22, kMaxIds = 10;

  static uint64_t hash(std::string_view word) {
    uint64_t h = word.size() * 0x9E3779B97F4A7C15ull;
    const char* p = word.data();
    size_t n = word.size();
    for (; n >= 8; p += 8, n -= 8) {
      uint64_t chunk;
      std::memcpy(&chunk, p, 8);
      h = (h ^ chunk) * 0xD6E8FEB86659FD93ull;
      h ^= h >> 32;
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < n; ++i) rest |= uint64_t{static_cast<uint8_t>(p[i])} << (8 * i);
    h = (h ^ rest) * 0xD6E8FEB86659FD93ull;
    return h ^ h >> 29;
  }
  // If `word` is cached, appends its ids to `out` and returns true; else returns false.
  bool find(std::string_view word, uint64_t hash, std::vector<TokenId>& out) const {
    if (entries_.empty() || word.size() > kMaxBytes) return false;
    const Entry& entry = entries_[hash & (kEntries - 1)];
    if (entry.size != word.size() || std::memcmp(entry.word, word.data(), word.size()) != 0) return false;
    out.insert(out.end(), entry.ids, entry.ids + entry.count);
    return true;
  }
  void put(std::string_view word, uint64_t hash, const TokenId* ids, size_t count) {
    if (word.empty() || word.size() > kMaxBytes || count > kMaxIds) return;
    if (entries_.empty()) entries_.resize(kEntries);
    Entry& entry = entries_[hash & (kEntries - 1)];
    entry.size = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(count);
    std::memcpy(entry.word, word.data(), word.size());
    std::copy(ids, ids + count, entry.ids);
  }

 private:
  static constexpr size_t kEntries = 1 << 14;
  struct alignas(64) Entry {
    uint8_t size = 0, count = 0;  // size 0: free
    char word[kMaxBytes];
    TokenId ids[kMaxIds];
  };
  std::vector<Entry> entries_;  // allocated by the first put()
};

// Working memory of one encode() call.
struct Workspace {
  WordCache cache;
  MergeScratch merge;
  std::vector<MergePiece> pieces;
  std::vector<uint32_t> ends, scratch;
  std::string text;
};

// A free list of workspaces. It grows to the maximum number of concurrent calls.
class WorkspacePool {
 public:
  class Lease {
   public:
    Lease(WorkspacePool& pool, std::unique_ptr<Workspace> space) : pool_(&pool), space_(std::move(space)) {}
    Lease(Lease&&) = default;
    ~Lease() {
      if (space_) pool_->give_back(std::move(space_));
    }
    Workspace& operator*() { return *space_; }

   private:
    WorkspacePool* pool_;
    std::unique_ptr<Workspace> space_;
  };
  Lease take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {*this, std::make_unique<Workspace>()};
    auto space = std::move(free_.back());
    free_.pop_back();
    return {*this, std::move(space)};
  }

 private:
  void give_back(std::unique_ptr<Workspace> space) {
    // Release large buffers after very long texts.
    constexpr size_t kKeep = 1 << 18;
    if (space->ends.capacity() > kKeep) space->ends = {};
    if (space->scratch.capacity() > kKeep) space->scratch = {};
    if (space->text.capacity() > kKeep) space->text = {};
    if (space->pieces.capacity() > kKeep) {
      space->pieces = {};
      space->merge = {};
    }
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(space));
  }
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

class BaseTokenizer : public Tokenizer {
 public:
  explicit BaseTokenizer(TokenizerSpec spec);

  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const override;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special) const override;
  std::string piece(TokenId id) const override;
  const TokenizerSpec& spec() const override { return spec_; }

 protected:
  // Properties of a text for encode_text().
  struct TextForm {
    bool space_prefix = false;  // the spec's space prefix is added before the text
    bool normalized = false;    // the text is a part of the result of normalized_form()
  };
  // Appends the ids of `text`, which contains no special token.
  virtual void encode_text(std::string_view text, TextForm form, std::vector<TokenId>& out) const = 0;
  // Returns the result of the spec's normalizers for `text`. Tokens with the flag `normalized` are matched in this
  // result.
  virtual std::string normalized_form(std::string_view text) const { return normalize(text); }
  // A subclass must call this at the end of its constructor, when normalized_form() can be called.
  void add_normalized_tokens();
  // Returns true if decoding removes the added space at the start of each prefixed fragment.
  virtual bool has_space_prefix() const { return false; }

  TokenType type(TokenId id) const {
    return spec_.types.empty() ? TokenType::normal : spec_.types[static_cast<size_t>(id)];
  }
  bool in_vocab(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < spec_.tokens.size(); }
  // The normalizer is a normal form (NFC, NFKC ...), followed by the literal replacements.
  bool has_normalizer() const;
  std::string normalize(std::string_view text) const;

  TokenizerSpec spec_;
  PackedStrings pieces_;  // bytes of each token, filled by the subclass's constructor

 private:
  void encode_fragment(std::string_view text, EncodeOptions options, bool& prefix, std::vector<TokenId>& out) const;
  bool prefix_after(TokenId special) const;

  SpecialTokens special_;
};

// The factories, one per file. Tokenizer::create() validates the common fields before it calls them.
Result<std::unique_ptr<Tokenizer>> create_bpe_tokenizer(TokenizerSpec spec);
Result<std::unique_ptr<Tokenizer>> create_spm_tokenizer(TokenizerSpec spec);
Result<std::unique_ptr<Tokenizer>> create_unigram_tokenizer(TokenizerSpec spec);
Result<std::unique_ptr<Tokenizer>> create_wordpiece_tokenizer(TokenizerSpec spec);
Result<std::unique_ptr<Tokenizer>> create_rwkv_tokenizer(TokenizerSpec spec);

// Returns the byte of a token spelled <0xNN>, or -1.
int byte_token_value(std::string_view token);
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace millrace
