// InternLM2: Llama whose folders store queries, keys and values as one matrix, interleaved by KV head
// (loader/grouped_rows.h separates it), under names of their own. GGUF files have three matrices, for interleaved
// pairs.
#include "base/ordered_json.h"
#include "models/arch/builtin.h"
#include "models/arch/common.h"
#include "models/arch/writing.h"

namespace millrace {
namespace {

void write_internlm2(const ArchSpec&, nlohmann::ordered_json& config) {
  config["bias"] = config["attention_bias"];  // of all its matrices of attention
  config.erase("attention_bias");
}

}  // namespace

const Arch kInternLm2 = {
    .name = "internlm2",
    .huggingface = {"InternLM2ForCausalLM"},
    .huggingface_type = "internlm2",
    .summary = "Llama with queries, keys and values in one matrix, interleaved by KV head",
    .paper = "Cai et al., 2024, InternLM2 Technical Report",
    .gguf_rope = RopeStyle::interleaved,
    .harmless_fields = {"bias"},  // the file's tensors tell
    .names = {{"token_embd.weight", "model.tok_embeddings.weight"},
              {"output.weight", "output.weight"},
              {"blk.{l}.attn_norm.weight", "model.layers.{l}.attention_norm.weight"},
              {"blk.{l}.attn_q.weight", "model.layers.{l}.attention.wq.weight"},
              {"blk.{l}.attn_k.weight", "model.layers.{l}.attention.wk.weight"},
              {"blk.{l}.attn_v.weight", "model.layers.{l}.attention.wv.weight"},
              {"blk.{l}.attn_output.weight", "model.layers.{l}.attention.wo.weight"},
              {"blk.{l}.attn_q.bias", "model.layers.{l}.attention.wq.bias"},
              {"blk.{l}.attn_k.bias", "model.layers.{l}.attention.wk.bias"},
              {"blk.{l}.attn_v.bias", "model.layers.{l}.attention.wv.bias"},
              {"blk.{l}.attn_output.bias", "model.layers.{l}.attention.wo.bias"},
              {"blk.{l}.ffn_norm.weight", "model.layers.{l}.ffn_norm.weight"},
              {"blk.{l}.ffn_gate.weight", "model.layers.{l}.feed_forward.w1.weight"},
              {"blk.{l}.ffn_up.weight", "model.layers.{l}.feed_forward.w3.weight"},
              {"blk.{l}.ffn_down.weight", "model.layers.{l}.feed_forward.w2.weight"}},
    .write_huggingface = write_internlm2,
};

}  // namespace millrace
