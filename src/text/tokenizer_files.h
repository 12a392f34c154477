// Readers of tokenizer files. They convert the content of a file (never a path) to a TokenizerSpec for
// Tokenizer::create(). Stateless and thread-safe. All input is untrusted: sizes and ids are checked before use.
// A feature that the tokenizer lacks causes an error `unsupported` that names it. An empty JSON string means that the
// optional file is absent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace {

// Reads tokenizer.json (Hugging Face tokenizers): BPE, Unigram and WordPiece models with their normalizer,
// pre_tokenizer, added_tokens and post_processor. Sets bos and eos only from the post-processor;
// apply_tokenizer_config() sets them and the other special tokens from tokenizer_config.json.
Result<TokenizerSpec> read_tokenizer_json(std::string_view json);

// Reads tokenizer.model or spiece.model (SentencePiece protobuf): BPE, unigram.
Result<TokenizerSpec> read_sentencepiece_model(std::string_view bytes);

// Reads vocab.json and merges.txt (GPT-2's layout). `added_tokens_json`: added_tokens.json, or empty. `pre`: GGUF's
// name of the pre-tokenizer ("gpt-2", "qwen2", "llama-bpe" ...), see known_pre_tokenizers().
Result<TokenizerSpec> read_vocab_merges(std::string_view vocab_json, std::string_view merges_txt,
                                        std::string_view added_tokens_json, std::string_view pre);

// Reads a tiktoken file: lines of "base64(token bytes) rank". `pattern`: a pre-tokenizer name as for
// read_vocab_merges(), or one of tiktoken's encoding names (r50k_base, p50k_base, p50k_edit, cl100k_base, o200k_base,
// whisper), which also add their special tokens. "llama-bpe" adds Llama 3's 256 special tokens if there are 128,000
// ranks.
Result<TokenizerSpec> read_tiktoken(std::string_view bytes, std::string_view pattern);

// Reads llama2.c's tokenizer.bin: int32 max_token_length, then per token float32 score, int32 length, bytes.
// `vocab_size`: vocabulary of the checkpoint; 0: read the whole file.
Result<TokenizerSpec> read_llama2c_tokenizer(std::string_view bytes, int32_t vocab_size);

// Reads an RWKV "World" vocabulary: lines of "id python-literal byte-length".
Result<TokenizerSpec> read_rwkv_vocab(std::string_view text);

// Applies tokenizer_config.json to `spec`: bos/eos/unk/pad/sep/cls/mask tokens, add_bos_token, add_eos_token,
// added_tokens_decoder, clean_up_tokenization_spaces, add_prefix_space. Also accepts special_tokens_map.json, and
// generation_config.json, whose eos_token_id (one id or a list) sets `eog`.
Result<void> apply_tokenizer_config(TokenizerSpec& spec, std::string_view json);

// Returns the format of `bytes`: "tokenizer.json", "sentencepiece", "tiktoken", "llama2c", or "" if unknown. Needed
// because both SentencePiece and tiktoken files are named tokenizer.model.
std::string_view sniff_tokenizer_file(std::string_view bytes);

// Fills spec.eog: eos and eot if set, and every control token with a well-known end-of-turn spelling (<|im_end|>,
// <|eot_id|>, <end_of_turn>, <|endoftext|> ...). Called by the readers, and by the GGUF loader.
void infer_end_of_generation(TokenizerSpec& spec);

// Returns the merges "left right", best first, of a byte-level BPE spec, for writing a GGUF or a merges.txt. If
// spec.merges is empty because ids are ranks (tiktoken), derives the merges from the tokens.
std::vector<std::string> derive_merges(const TokenizerSpec& spec);

// Returns the names that TokenizerSpec::pre accepts.
std::vector<std::string_view> known_pre_tokenizers();

}  // namespace millrace
