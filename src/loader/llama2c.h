// llama2.c checkpoints (https://github.com/karpathy/llama2.c, export.py), little-endian:
//
//   v0: i32 dim, ffn, layers, heads, kv_heads, vocab (negative: untied head), context; then F32, all layers of a
//       kind together: embedding, attention norms, wq, wk, wv, wo, ffn norms, w1, w2, w3, final norm, two unused RoPE
//       tables of [context, head_dim / 2], and the head if it is untied
//   v2: u32 0x616b3432 ("ak42"), i32 2, the seven i32 of v0, u8 shared head, i32 group, zeros to byte 256;
//       F32 attention norms, ffn norms, final norm; then Q8 tensors: embedding, wq, wk, wv, wo, w1, w2, w3
//       each layer by layer, head
//       Q8: i8 values q, then one F32 scale for each group of consecutive values; value = q * scale
//
// RoPE rotates adjacent pairs, as in GGUF's llama. All sizes are checked against the file's size before data is read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/mapped_file.h"
#include "text/tokenizer.h"

namespace millrace {

struct Llama2cTensor {
  std::string name;                 // GGUF's name: "token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight" ...
  std::vector<int64_t> dims;        // outermost first
  const uint8_t* values = nullptr;  // F32, or int8 when `group` is not 0; may be unaligned
  const uint8_t* scales = nullptr;  // F32, one per group
  int64_t group = 0;

  int64_t count() const;
  // Decodes the tensor to floats, `out` [count()].
  void decode(float* out) const;
};

struct Llama2cCheckpoint {
  int version = 0;
  int64_t dim = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0, vocab = 0, context = 0;
  bool shared_head = true;  // the head is the embedding; there is no "output.weight"
  float norm_epsilon = 1e-5f;
  float rope_base = 10000.0f;
  std::vector<Llama2cTensor> tensors;
  std::shared_ptr<const MappedFile> file;  // keeps the tensors' bytes alive

  int64_t head_dim() const { return dim / heads; }
  const Llama2cTensor* find(std::string_view name) const;  // null if absent
};

// Errors: corrupt (the message has the file, the problem and the sizes), unsupported (version 1).
Result<Llama2cCheckpoint> read_llama2c(const std::string& path);

// Reads the tokenizer file `path`. If `path` is empty, reads the only file named tokenizer.bin or tokN.bin next to
// `checkpoint_path`; returns nullopt if there is none.
Result<std::optional<TokenizerSpec>> read_llama2c_tokenizer_file(const std::string& path,
                                                                 const std::string& checkpoint_path, int64_t vocab);

}  // namespace millrace
