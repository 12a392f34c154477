// Readers of tokenizer files: the content of a file (never a path) -> TokenizerSpec, ready for
// Tokenizer::create. Stateless functions, safe from any thread. Every input is untrusted: sizes and
// ids are checked before use, and what a file asks for that is not implemented is Error::unsupported
// with its name. JSON inputs that are empty strings stand for absent optional files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace {

// tokenizer.json (Hugging Face tokenizers): BPE, Unigram and WordPiece models with their normalizer,
// pre_tokenizer, added_tokens and post_processor. Fills bos/eos only as far as the post-processor
// tells; apply_tokenizer_config() below fills the rest.
Result<TokenizerSpec> read_tokenizer_json(std::string_view json);

// tokenizer.model / spiece.model (SentencePiece protobuf): BPE, unigram.
Result<TokenizerSpec> read_sentencepiece_model(std::string_view bytes);

// vocab.json + merges.txt (GPT-2 layout). `added_tokens_json` is added_tokens.json or empty. `pre` is
// the GGUF name of the pre-tokenizer ("gpt-2", "qwen2", "llama-bpe" ...), see known_pre_tokenizers().
Result<TokenizerSpec> read_vocab_merges(std::string_view vocab_json, std::string_view merges_txt,
                                        std::string_view added_tokens_json, std::string_view pre);

// Lines of "base64(token bytes) rank". `pattern` is a pre-tokenizer name as above or one of tiktoken's
// encoding names (r50k_base, p50k_base, p50k_edit, cl100k_base, o200k_base, whisper), which also add their
// special tokens; "llama-bpe" adds Llama 3's 256 special tokens when there are 128,000 ranks.
Result<TokenizerSpec> read_tiktoken(std::string_view bytes, std::string_view pattern);

// llama2.c tokenizer.bin: int32 max_token_length, then per token float32 score, int32 length, bytes.
// `vocab_size` comes from the checkpoint; 0 reads all that the file holds.
Result<TokenizerSpec> read_llama2c_tokenizer(std::string_view bytes, int32_t vocab_size);

// RWKV "World" vocabulary: lines of "id python-literal byte-length".
Result<TokenizerSpec> read_rwkv_vocab(std::string_view text);

// tokenizer_config.json over a spec: bos/eos/unk/pad/sep/cls/mask tokens, add_bos_token, add_eos_token,
// added_tokens_decoder, clean_up_tokenization_spaces, add_prefix_space. Also accepts
// special_tokens_map.json, and generation_config.json's eos_token_id (one id or a list) for `eog`.
Result<void> apply_tokenizer_config(TokenizerSpec& spec, std::string_view json);

// Which of the formats above `bytes` looks like: "tokenizer.json", "sentencepiece", "tiktoken", "llama2c" or
// "" when none. tokenizer.model is used for both SentencePiece and tiktoken files.
std::string_view sniff_tokenizer_file(std::string_view bytes);

// Fills spec.eog: eos and eot when set, and every control token with a well-known end-of-turn spelling
// (<|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|> ...). Readers call it; GGUF's caller may too.
void infer_end_of_generation(TokenizerSpec& spec);

// Merges "left right", best first, for a byte-level BPE spec that has none because its ids are its
// ranks (tiktoken): what a GGUF or a merges.txt needs. Returns spec.merges when that is not empty.
std::vector<std::string> derive_merges(const TokenizerSpec& spec);

// Names that TokenizerSpec::pre accepts.
std::vector<std::string_view> known_pre_tokenizers();

}  // namespace millrace
