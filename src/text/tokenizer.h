// Tokenizer: converts between text and token ids. Immutable after create(), safe to share between threads.
// TokenizerSpec is plain data that a loader fills from GGUF metadata (tokenizer.ggml.*) or from a Hugging Face folder
// (tokenizer.json, tokenizer.model, vocab.json + merges.txt).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "millrace/token.h"

namespace millrace {

enum class TokenType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

// Places at which a tokenizer with add_space_prefix adds a space (SentencePiece's dummy prefix).
enum class SpacePrefix : uint8_t {
  first,          // only before the first byte of the text (Hugging Face Metaspace "first")
  after_control,  // also after control tokens, not after user-defined tokens (SentencePiece on each fragment)
  after_any,      // also after every special token (GGUF convention, Hugging Face Prepend / "always")
};

// How a special token is matched in the text. Only tokens with at least one flag are listed.
struct AddedTokenFlags {
  TokenId id = 0;
  bool lstrip = false;       // consumes white space before it
  bool rstrip = false;       // consumes white space after it
  bool single_word = false;  // matched only between non-word characters
  bool normalized = false;   // matched in the normalized text, after the tokens without this flag
};

struct TokenizerSpec {
  // Algorithm: "bpe" (byte-level BPE), "spm" (SentencePiece BPE with byte fallback), "unigram" or "wordpiece". GGUF's
  // tokenizer.ggml.model has other names: gpt2 is bpe, llama is spm, t5 is unigram, bert is wordpiece.
  std::string kind;
  std::string pre;                        // pre-tokenizer of bpe, by GGUF's name: "gpt-2", "llama-bpe", "qwen2" ...
  std::vector<std::string> pre_patterns;  // regexes from tokenizer.json; used instead of `pre` when not empty
  std::vector<std::string> tokens;        // by id; byte-level BPE tokens in GPT-2's byte-to-unicode spelling
  std::vector<float> scores;              // spm, unigram; may be empty
  std::vector<TokenType> types;           // empty: all normal
  std::vector<std::string> merges;        // bpe: "left right", best first
  std::optional<TokenId> bos, eos, unk, pad, sep, cls, mask, eot, eom, fim_prefix, fim_suffix, fim_middle;
  std::vector<TokenId> eog;  // every id that ends a generation (eos, eot, <|im_end|> ...)
  bool add_bos = false;
  bool add_eos = false;
  bool add_sep = false;
  bool add_space_prefix = true;               // spm, unigram: a space is added before the text
  bool remove_extra_whitespaces = false;      // unigram, some spm models
  bool ignore_merges = false;                 // bpe: a word that is a token is not merged (Llama 3)
  bool clean_up_spaces = false;               // Hugging Face clean_up_tokenization_spaces on decode
  bool lowercase = false;                     // wordpiece
  bool nfc = false;                           // normalizer of tokenizer.json: NFC before splitting
  std::vector<uint8_t> precompiled_charsmap;  // SentencePiece normalizer, as stored

  // The following fields are set only by some files. Their defaults are those of GGUF.
  SpacePrefix space_prefix = SpacePrefix::after_any;
  bool escape_whitespaces = true;  // spm, unigram: spaces are written as U+2581 in the tokens
  bool whitespace_suffix = false;  // spm, unigram: U+2581 ends a word instead of starting it
  bool byte_fallback = true;       // spm, unigram: characters without a token become <0xNN> tokens where they exist
  bool fuse_unk = true;            // a run of unknown characters is one unk token
  bool nfkc = false, nfd = false, nfkd = false;  // like nfc; at most one of the four is set
  bool strip_accents = false;                    // wordpiece: drop combining marks after NFD (BERT uncased)
  bool clean_text = true;                        // wordpiece: drop control characters
  bool split_cjk = true;                         // wordpiece: each Han character is a word
  std::vector<std::pair<std::string, std::string>> replacements;  // literal, in order, before splitting (normalizer)
  bool byte_level_space_prefix = false;  // bpe: adds a space before text that has none (add_prefix_space)
  bool split_on_space = false;           // spm, unigram: every U+2581 starts a new word (Hugging Face Metaspace split)
  bool prefix_before_match = false;      // spm, unigram: the space prefix is part of the normalized text (Prepend)
  bool escape_before_match = false;      // spm, unigram: the normalized text has U+2581 instead of spaces (Replace)
  bool split_at_whitespace = false;      // unigram: words end at white space, which is dropped (WhitespaceSplit)
  std::string unk_surface;               // how decode() writes unk; empty: the token's own text
  std::vector<AddedTokenFlags> added_flags;
};

struct EncodeOptions {
  bool add_special = true;    // add BOS / EOS / CLS / SEP according to the spec
  bool parse_special = true;  // text of control tokens is encoded as their ids
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Errors: corrupt (inconsistent spec), unsupported (unknown kind or pre-tokenizer, by its name).
  static Result<std::unique_ptr<Tokenizer>> create(TokenizerSpec spec);

  // Accepts any byte string and never fails; invalid UTF-8 is encoded as byte tokens or U+FFFD.
  virtual std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const = 0;

  // Inverse of encode(). `skip_special`: omit control tokens. Ids out of range decode to nothing.
  virtual std::string decode(const std::vector<TokenId>& ids, bool skip_special = false) const = 0;

  // Returns the bytes of `id` if it is not the first token of the text; for streaming.
  virtual std::string piece(TokenId id) const = 0;

  virtual const TokenizerSpec& spec() const = 0;
  int32_t vocab_size() const { return static_cast<int32_t>(spec().tokens.size()); }
  bool is_eog(TokenId id) const;
  bool is_control(TokenId id) const;
};

}  // namespace millrace
