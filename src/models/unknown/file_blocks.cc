#include "models/unknown/file_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "base/ordered_json.h"
#include "models/unknown/tensor_kinds.h"

namespace millrace {
namespace {

using Kinds = std::vector<std::string>;

bool any_has(const Kinds& kinds, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(kinds, [&](const std::string& kind) {
    return std::ranges::any_of(parts, [&](std::string_view part) { return kind.find(part) != std::string::npos; });
  });
}

// The file's fields, by GGUF's names behind the architecture's or by those of config.json.
class FileFields {
 public:
  explicit FileFields(const ModelFiles& files)
      : fields_(model_fields(files)), prefix_(files.kind == ModelFiles::Kind::gguf ? files.architecture + "." : "") {}

  // The first of the fields that is stored as a number or a list of numbers: "8", or "2 to 8". "": none is.
  std::string text(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      const auto found = fields_.find(prefix_ + std::string(name));
      if (found == fields_.end()) continue;
      if (found->is_number()) return found->dump();
      if (!found->is_array() || found->empty()) continue;
      if (!std::ranges::all_of(*found, [](const auto& one) { return one.is_number(); })) continue;
      const auto [least, most] =
          std::ranges::minmax_element(*found, {}, [](const auto& one) { return one.template get<double>(); });
      return *least == *most ? least->dump() : fmt::format("{} to {}", least->dump(), most->dump());
    }
    return {};
  }

 private:
  nlohmann::ordered_json fields_;
  std::string prefix_;
};

// Joins "32" and " heads" where there is a number.
class BlockText {
 public:
  void add(const std::string& number, std::string_view behind, std::string_view before = "") {
    if (!number.empty()) add(fmt::format("{}{}{}", before, number, behind));
  }
  void add(const std::string& text) { out_ += (out_.empty() ? "" : ", ") + text; }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

std::string attention_text(const FileFields& fields, const Kinds& kinds) {
  BlockText out;
  out.add(fields.text({"attention.head_count", "num_attention_heads", "n_head", "num_heads"}), " heads");
  const std::string dims = fields.text({"attention.key_length", "head_dim", "d_kv"});
  out.add(fields.text({"attention.head_count_kv", "num_key_value_heads", "n_head_kv"}),
          dims.empty() ? " KV heads" : fmt::format(" KV heads of {} dims", dims));
  out.add(fields.text({"attention.sliding_window", "sliding_window"}), "", "a window of ");
  if (any_has(kinds, {".bias"})) out.add("biases");
  return out.take();
}

std::string latent_text(const FileFields& fields, const Kinds&) {
  BlockText out;
  out.add(fields.text({"attention.kv_lora_rank", "kv_lora_rank"}), "", "keys and values of rank ");
  out.add(fields.text({"attention.q_lora_rank", "q_lora_rank"}), "", "queries of rank ");
  return out.take();
}

std::string experts_text(const FileFields& fields, const Kinds& kinds) {
  BlockText out;
  out.add(fields.text({"expert_count", "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}),
          " experts");
  out.add(fields.text({"expert_used_count", "num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k"}), "", "top ");
  out.add(fields.text({"expert_feed_forward_length", "moe_intermediate_size"}), "", "hidden ");
  if (any_has(kinds, {"shexp", "shared"})) out.add("a shared expert");
  if (any_has(kinds, {"exp_probs", "e_score"})) out.add("a bias of the selection");
  return out.take();
}

std::string mlp_text(const FileFields& fields, const Kinds& kinds) {
  BlockText out;
  out.add(any_has(kinds, {"ffn_gate", "gate_proj", "gate_up"}) ? "with a gate" : "without a gate, or with a fused one");
  out.add(fields.text({"feed_forward_length", "intermediate_size", "d_ff", "n_inner"}), "", "hidden ");
  return out.take();
}

std::string state_text(const FileFields& fields, const Kinds& kinds) {
  BlockText out;
  if (any_has(kinds, {"ssm_beta", "ssm_ba", "linear_attn"}))
    out.add("a gated delta net");
  else
    out.add(any_has(kinds, {"ssm_x", "x_proj"}) ? "as Mamba" : "as Mamba-2");
  out.add(fields.text({"ssm.inner_size", "mamba_d_ssm"}), " channels");
  out.add(fields.text({"ssm.state_size", "mamba_d_state", "state_size", "ssm_state_size"}), "", "states of ");
  out.add(fields.text({"ssm.conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim", "conv_kernel"}), " taps");
  return out.take();
}

std::string convolution_text(const FileFields& fields, const Kinds&) {
  BlockText out;
  out.add(fields.text({"shortconv.l_cache", "conv_L_cache"}), " taps");
  return out.take();
}

std::string norms_text(const FileFields&, const Kinds& kinds) {
  BlockText out;
  out.add(any_has(kinds, {".bias"}) ? "with biases" : "without biases");
  if (any_has(kinds, {"post_attention_norm", "post_ffw_norm", "attn_post_norm", "ffn_post_norm"}))
    out.add("also after blocks");
  return out.take();
}

struct BlockRule {
  std::string_view name;
  std::vector<std::string_view> parts;  // of a kind of tensor with a dot before it
  std::string (*text)(const FileFields& fields, const Kinds& kinds) = nullptr;
  bool (*takes)(std::string_view kind) = nullptr;  // if not null, the rule has no parts
};

// The first rule with a part of the kind counts; the last one takes every kind.
const std::vector<BlockRule>& block_rules() {
  static const std::vector<BlockRule> rules = {
      {"encoder of pictures or sound", {}, nullptr, is_media_tensor},
      {"prediction of further tokens", {"nextn", ".mtp."}},
      {"norms of queries and keys",
       {"attn_q_norm", "attn_k_norm", ".q_norm", ".k_norm", ".q_layernorm", ".k_layernorm", ".query_layernorm",
        ".key_layernorm"}},
      {"attention sinks", {"attn_sinks", ".sinks"}},
      {"indexer of sparse attention", {"indexer"}},
      {"latent attention",
       {"attn_kv_a", "attn_kv_b", "attn_k_b", "attn_v_b", "attn_q_a", "attn_q_b", "kv_a_", "kv_b_", ".q_a_", ".q_b_"},
       latent_text},
      {"short convolution", {"shortconv", ".conv."}, convolution_text},
      {"delta attention with a decay per channel",
       {"ssm_f_", "ssm_g_", "ssm_conv1d_", ".f_a_", ".f_b_", ".g_a_", ".g_b_", ".q_conv", ".k_conv", ".v_conv"}},
      {"state space",
       {"ssm_", ".mamba.", ".linear_attn.", ".mixer.in_proj", ".mixer.conv1d", ".mixer.A_log", ".mixer.D", ".mixer.dt_",
        ".mixer.x_proj", ".mixer.out_proj", ".mixer.norm"},
       state_text},
      {"mixing with earlier tokens as in RWKV", {"time_mix", "channel_mix", ".time_", ".x_r", ".x_k"}},
      {"cross-attention", {"cross_attn", "EncDecAttention", "encoder_attn"}},
      {"buckets of relative positions", {"attn_rel_b", "relative_attention_bias"}},
      {"mixture of experts",
       {"_exps", "gate_inp", "exp_probs", "shexp", "expert", "block_sparse_moe", ".router", ".mlp.gate.", "shared_mlp",
        "e_score"},
       experts_text},
      {"embeddings of each layer", {"per_layer", ".inp_gate."}},
      {"several residual streams", {"altup", "laurel", ".hc_", "hyper_conn"}},
      {"head of an encoder", {".cls", "pooler", ".score.", ".dense_2", ".dense_3", "classifier"}},
      {"norms", {"norm", ".ln_", "_ln."}, norms_text},
      {"gate of a mixer's output", {"attn_gate", "attn.g_proj", "attn.gate_proj"}},
      {"attention",
       {"attn", "attention", "Attention", ".q_proj", ".k_proj", ".v_proj", ".o_proj", "query_key_value"},
       attention_text},
      {"learned positions", {"position_emb", ".wpe.", "embed_positions"}},
      {"token types", {"token_type"}},
      {"embedding", {"token_embd", "embed_tokens", "word_emb", ".wte.", ".shared.weight", "embeddings"}},
      {"head", {".output.", "lm_head", "embed_out"}},
      {"MLP", {"ffn", "mlp", "feed_forward", ".c_fc", "h_to_4h", ".fc1", ".fc2", "DenseReluDense"}, mlp_text},
      {"other tensors", {"."}}};
  return rules;
}

size_t rule_of(const std::string& kind) {
  const std::string dotted = "." + kind;
  const std::vector<BlockRule>& rules = block_rules();
  const auto matches = [&](const BlockRule& rule) {
    if (rule.takes) return rule.takes(kind);
    return std::ranges::any_of(rule.parts,
                               [&](std::string_view part) { return dotted.find(part) != std::string::npos; });
  };
  return static_cast<size_t>(std::ranges::find_if(rules, matches) - rules.begin());
}

// Which families read the block's tensors. Names that all families declare are known even if none reads them here.
void add_families(std::span<const ArchComparison> known, const std::set<std::string>& common, FileBlock& block) {
  const auto reads_all = [&](const ArchComparison& one) {
    return std::ranges::all_of(block.kinds, [&](const std::string& kind) { return one.reads.contains(kind); });
  };
  const auto nearest = std::ranges::find_if(known, reads_all);
  if (nearest != known.end()) {
    block.as_in = nearest->arch->name;
    return;
  }
  for (const std::string& kind : block.kinds) {
    const auto reads = [&](const ArchComparison& one) { return one.reads.contains(kind); };
    if (!common.contains(kind) && std::ranges::none_of(known, reads)) block.not_built.push_back(kind);
  }
}

}  // namespace

std::vector<FileBlock> file_blocks(const ModelFiles& files, std::span<const ArchComparison> known) {
  struct Found {
    Kinds kinds;
    std::set<int64_t> layers;
  };
  std::map<size_t, Found> found;
  for (const auto& [kind, stored] : tensor_kinds(files)) found[rule_of(kind)].kinds.push_back(kind);
  std::set<int64_t> layers;
  for (const StoredTensor& stored : files.tensors) {
    const int64_t layer = layer_number(stored.name);
    if (layer < 0 || is_derived_tensor(stored.name)) continue;
    layers.insert(layer);
    found[rule_of(tensor_kind(stored.name))].layers.insert(layer);
  }
  const bool gguf = files.kind == ModelFiles::Kind::gguf;
  std::set<std::string> common;
  for (const TensorName& name : common_tensor_names())
    common.insert(pattern_kind(gguf ? name.canonical : name.huggingface));
  const FileFields fields(files);
  std::vector<FileBlock> out;
  for (auto& [at, one] : found) {
    const BlockRule& rule = block_rules()[at];
    FileBlock& block = out.emplace_back();
    block.name = rule.name;
    if (rule.text) block.text = rule.text(fields, one.kinds);
    if (!one.layers.empty() && one.layers.size() < layers.size())
      block.text +=
          fmt::format("{}in {} of {} layers", block.text.empty() ? "" : "; ", one.layers.size(), layers.size());
    block.kinds = std::move(one.kinds);
    add_families(known, common, block);
  }
  return out;
}

std::string built_text(const FileBlock& block) {
  if (!block.as_in.empty()) return fmt::format("as in {}", block.as_in);
  if (block.not_built.empty()) return "in no known architecture as a whole";
  std::string out = "not built: ";
  for (size_t i = 0; i < block.not_built.size(); ++i) out += (i == 0 ? "" : ", ") + block.not_built[i];
  return out;
}

}  // namespace millrace
