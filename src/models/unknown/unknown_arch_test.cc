// Files of families that do not exist: which known one is named as the nearest, what differs, and the blocks they need.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "models/unknown/file_blocks.h"
#include "models/unknown/tensor_kinds.h"
#include "test_paths.h"

namespace millrace {
namespace {

using UnknownJson = nlohmann::ordered_json;

void add_unknown_tensor(ModelFiles& files, const std::string& name, std::vector<int64_t> dims) {
  StoredTensor stored;
  stored.name = name;
  stored.type_name = "F32";
  stored.tensor.format = find_format("f32");
  static const std::vector<float> values(2048, 1.0f);
  stored.tensor.data = reinterpret_cast<const uint8_t*>(values.data());
  stored.tensor.rank = static_cast<int>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) stored.tensor.dims[i] = dims[i];
  stored.tensor.bytes = stored.tensor.values() * 4;
  files.tensor_index.emplace(name, files.tensors.size());
  files.tensors.push_back(std::move(stored));
}

// A dense GGUF model of 2 layers: 4 heads of 8 dims, 2 KV heads, with norms of heads.
ModelFiles heron_gguf() {
  ModelFiles files;
  files.path = "heron.gguf";
  files.architecture = "heron";
  files.config = std::make_shared<const UnknownJson>(UnknownJson::parse(R"({"general.architecture": "heron",
      "heron.block_count": 2, "heron.context_length": 64, "heron.embedding_length": 32, "heron.feed_forward_length": 48,
      "heron.attention.head_count": 4, "heron.attention.head_count_kv": 2, "heron.vocab_size": 16,
      "heron.attention.layer_norm_rms_epsilon": 1e-6, "heron.rope.freq_base": 10000.0})"));
  add_unknown_tensor(files, "token_embd.weight", {16, 32});
  add_unknown_tensor(files, "output_norm.weight", {32});
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    add_unknown_tensor(files, layer + "attn_norm.weight", {32});
    add_unknown_tensor(files, layer + "attn_q.weight", {32, 32});
    add_unknown_tensor(files, layer + "attn_k.weight", {16, 32});
    add_unknown_tensor(files, layer + "attn_v.weight", {16, 32});
    add_unknown_tensor(files, layer + "attn_output.weight", {32, 32});
    add_unknown_tensor(files, layer + "attn_q_norm.weight", {8});
    add_unknown_tensor(files, layer + "attn_k_norm.weight", {8});
    add_unknown_tensor(files, layer + "ffn_norm.weight", {32});
    add_unknown_tensor(files, layer + "ffn_gate.weight", {48, 32});
    add_unknown_tensor(files, layer + "ffn_up.weight", {48, 32});
    add_unknown_tensor(files, layer + "ffn_down.weight", {32, 48});
  }
  return files;
}

void rename_unknown_tensors(ModelFiles& files, const std::string& from, const std::string& to) {
  files.tensor_index.clear();
  for (size_t i = 0; i < files.tensors.size(); ++i) {
    std::string& name = files.tensors[i].name;
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    files.tensor_index.emplace(name, i);
  }
}

const FileBlock* block_named(const std::vector<FileBlock>& blocks, const std::string& name) {
  for (const FileBlock& block : blocks)
    if (block.name == name) return &block;
  return nullptr;
}

TEST(UnknownArch, KindsLeaveOutNumbers) {
  EXPECT_EQ(tensor_kind("blk.12.attn_q.weight"), "blk.*.attn_q.weight");
  EXPECT_EQ(tensor_kind("blk.3.ffn_up.7.weight"), "blk.*.ffn_up_exps.weight");
  EXPECT_EQ(tensor_kind("model.language_model.layers.0.mlp.experts.3.up_proj.weight"),
            "layers.*.mlp.experts.*.up_proj.weight");
  EXPECT_EQ(tensor_kind("output.weight"), "output.weight");
  EXPECT_EQ(tensor_kind(""), "");
  EXPECT_EQ(layer_number("model.layers.12.mlp.experts.3.up_proj.weight"), 12);
  EXPECT_EQ(layer_number("language_model.model.layers.2.norm.weight"), 2);
  EXPECT_EQ(layer_number("blk.99999999999999999999.norm.weight"), 1'000'000);
  EXPECT_EQ(layer_number("h.0.ln_1.weight"), 0);
  EXPECT_EQ(layer_number("altup_proj.2.weight"), -1);
  EXPECT_EQ(layer_number("blk"), -1);
  EXPECT_EQ(pattern_kind("^transformer.h.{l}.attn.c_attn.weight"), "h.*.attn.c_attn.weight");
}

TEST(UnknownArch, AFileLikeAKnownFamilysHasNoDifference) {
  const ModelFiles files = heron_gguf();
  const ArchComparison nearest = compare_with_known(files).front();
  EXPECT_EQ(nearest.arch->name, "qwen3");
  EXPECT_EQ(nearest.differences(), 0u);
  const auto spec = read_arch_spec(files);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(spec.error().message,
            "heron.gguf: architecture 'heron' is not known; the nearest is qwen3, and no tensor or field differs from "
            "it. `millrace inspect` lists the blocks that the model needs, `millrace techniques --family arch` the "
            "known architectures");
}

// Every file is compared with its own family as if that were not known. One file has a tensor of a layer that predicts
// further tokens, which the family's models do not read.
TEST(UnknownArch, FilesOfAKnownFamilyDoNotDifferFromIt) {
  namespace fs = std::filesystem;
  const fs::path golden = fs::path(MILLRACE_SOURCE_DIR) / "tests/golden";
  int compared = 0;
  for (const fs::path& folder : {golden, golden / "encoders"})
    for (const auto& entry : fs::directory_iterator(folder)) {
      const fs::path path = entry.path() / "model.gguf";
      if (!fs::exists(path)) continue;
      SCOPED_TRACE(path.string());
      const auto files = open_model_files(path.string());
      ASSERT_TRUE(files.ok()) << files.error().message;
      std::vector<std::string> unread;
      if (path.parent_path().filename() == "qwen35") unread.emplace_back("blk.*.nextn.eh_proj.weight");
      const std::vector<ArchComparison> known = compare_with_known(*files);
      EXPECT_EQ(known.front().differences(), unread.size());
      const auto own = std::ranges::find(known, files->architecture, [](const auto& one) { return one.arch->name; });
      ASSERT_NE(own, known.end());
      EXPECT_EQ(own->problem, "");
      EXPECT_EQ(own->unread, std::vector<std::string>());
      EXPECT_EQ(own->missing, std::vector<std::string>());
      EXPECT_EQ(own->extra, unread);
      EXPECT_EQ(own->shapes, std::vector<std::string>());
      ++compared;
    }
  EXPECT_GT(compared, 40);
}

// A small file may state sizes whose tensors would not fit in memory.
TEST(UnknownArch, ListsOfLargeTensorsEnd) {
  ModelFiles files = heron_gguf();
  auto config = *files.config;
  config["heron.ssm.inner_size"] = 1 << 20;
  config["heron.ssm.state_size"] = 4096;
  config["heron.ssm.conv_kernel"] = 4;
  config["heron.ssm.time_step_rank"] = 4;
  config["heron.expert_count"] = 65536;
  config["heron.expert_used_count"] = 1;
  config["heron.expert_feed_forward_length"] = 8;
  files.config = std::make_shared<const UnknownJson>(config);
  for (const ArchComparison& one : compare_with_known(files)) EXPECT_LT(one.missing.size(), 100u) << one.arch->name;
}

TEST(UnknownArch, DifferencesAreNamed) {
  ModelFiles files = heron_gguf();
  auto config = *files.config;
  config["heron.attention.chunk_size"] = 8;
  files.config = std::make_shared<const UnknownJson>(config);
  rename_unknown_tensors(files, "attn_k_norm", "attn_k_whiten");
  for (StoredTensor& stored : files.tensors)
    if (stored.name.ends_with("attn_q_norm.weight")) stored.tensor.dims[0] = 32;
  add_unknown_tensor(files, "rope_freqs.weight", {4});  // is no difference
  const ArchComparison nearest = compare_with_known(files).front();
  const std::string message = unknown_architecture(files).message;
  EXPECT_EQ(nearest.arch->name, "llama") << message;  // qwen3's norms differ in two kinds, and one is missing
  EXPECT_EQ(nearest.extra, (std::vector<std::string>{"blk.*.attn_k_whiten.weight", "blk.*.attn_q_norm.weight"}));
  EXPECT_EQ(nearest.unread, std::vector<std::string>{"attention.chunk_size is 8"});
  EXPECT_NE(
      message.find("the nearest is llama: it has tensors that llama does not read: blk.*.attn_k_whiten.weight, "
                   "blk.*.attn_q_norm.weight; it has fields that llama does not read: attention.chunk_size is 8."),
      std::string::npos)
      << message;
  for (const ArchComparison& one : compare_with_known(files)) {
    if (one.arch->name != "qwen3") continue;
    EXPECT_EQ(one.missing, std::vector<std::string>{"blk.*.attn_k_norm.weight"});
    EXPECT_EQ(one.shapes, std::vector<std::string>{"blk.0.attn_q_norm.weight is [32], not [1, 8]"});
  }
}

TEST(UnknownArch, LongListsAreCut) {
  ModelFiles files = heron_gguf();
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) add_unknown_tensor(files, std::string(name) + ".weight", {4});
  const std::string message = unknown_architecture(files).message;
  EXPECT_NE(message.find("a.weight, b.weight, c.weight, d.weight and 2 more"), std::string::npos) << message;
}

TEST(UnknownArch, AFolderIsComparedByItsNames) {
  ModelFiles files;
  files.kind = ModelFiles::Kind::huggingface;
  files.path = "heron";
  files.architecture = "HeronForConditionalGeneration";
  files.config = std::make_shared<const UnknownJson>(UnknownJson::parse(R"({"architectures": ["Heron"],
      "text_config": {"vocab_size": 16, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 24,
      "decoder_sparse_step": 1, "norm_topk_prob": true}})"));
  const std::string layer = "model.language_model.layers.0.";
  add_unknown_tensor(files, "model.language_model.embed_tokens.weight", {16, 32});
  add_unknown_tensor(files, "model.language_model.norm.weight", {32});
  add_unknown_tensor(files, layer + "input_layernorm.weight", {32});
  add_unknown_tensor(files, layer + "post_attention_layernorm.weight", {32});
  add_unknown_tensor(files, layer + "self_attn.q_proj.weight", {32, 32});
  for (const char* name : {"k", "v"}) add_unknown_tensor(files, layer + "self_attn." + name + "_proj.weight", {16, 32});
  add_unknown_tensor(files, layer + "self_attn.o_proj.weight", {32, 32});
  for (const char* name : {"q", "k"}) add_unknown_tensor(files, layer + "self_attn." + name + "_norm.weight", {8});
  add_unknown_tensor(files, layer + "mlp.gate.weight", {2, 32});
  for (const std::string expert : {"0", "1"}) {
    add_unknown_tensor(files, layer + "mlp.experts." + expert + ".gate_proj.weight", {24, 32});
    add_unknown_tensor(files, layer + "mlp.experts." + expert + ".up_proj.weight", {24, 32});
    add_unknown_tensor(files, layer + "mlp.experts." + expert + ".down_proj.weight", {32, 24});
  }
  add_unknown_tensor(files, "model.visual.patch_embed.weight", {8, 8});
  const auto known = compare_with_known(files);
  EXPECT_EQ(known.front().arch->name, "qwen3moe");
  EXPECT_EQ(known.front().extra, std::vector<std::string>{"visual.patch_embed.weight"});
  EXPECT_EQ(known.front().differences(), 1u);
  const auto blocks = file_blocks(files, known);
  const FileBlock* experts = block_named(blocks, "mixture of experts");
  ASSERT_TRUE(experts);
  EXPECT_EQ(experts->text, "2 experts, top 1, hidden 24");
  EXPECT_EQ(built_text(*experts), "as in qwen3moe");
  ASSERT_TRUE(block_named(blocks, "encoder of pictures or sound"));
  EXPECT_EQ(built_text(*block_named(blocks, "encoder of pictures or sound")), "not built: visual.patch_embed.weight");
  EXPECT_EQ(block_named(blocks, "attention")->text, "4 heads, 2 KV heads of 8 dims");
}

TEST(UnknownArch, BlocksOfSomeLayersAreCounted) {
  ModelFiles files = heron_gguf();
  auto config = *files.config;
  config["heron.shortconv.l_cache"] = 3;
  config["heron.attention.head_count_kv"] = {0, 2};
  files.config = std::make_shared<const UnknownJson>(config);
  for (const char* part : {"q", "k", "v"})
    rename_unknown_tensors(files, std::string("blk.0.attn_") + part + ".weight",
                           std::string("blk.0.shortconv.") + part + ".weight");
  rename_unknown_tensors(files, "blk.0.attn_output.weight", "blk.0.shortconv.out_proj.weight");
  const auto blocks = file_blocks(files, compare_with_known(files));
  const FileBlock* convolution = block_named(blocks, "short convolution");
  ASSERT_TRUE(convolution);
  EXPECT_EQ(convolution->text, "3 taps; in 1 of 2 layers");
  EXPECT_EQ(convolution->as_in, "");
  EXPECT_EQ(convolution->not_built.size(), 4u);
  EXPECT_EQ(block_named(blocks, "attention")->text, "4 heads, 0 to 2 KV heads; in 1 of 2 layers");
  EXPECT_EQ(block_named(blocks, "norms")->text, "without biases");
  EXPECT_EQ(block_named(blocks, "MLP")->text, "with a gate, hidden 48");
  EXPECT_EQ(block_named(blocks, "other tensors"), nullptr);
}

TEST(UnknownArch, AConfigurationThatNoFamilyCanRead) {
  ModelFiles files = heron_gguf();
  files.config = std::make_shared<const UnknownJson>(UnknownJson::object());
  const ArchComparison nearest = compare_with_known(files).front();
  EXPECT_FALSE(nearest.problem.empty());
  const std::string message = unknown_architecture(files).message;
  EXPECT_NE(message.find(": it cannot be read as that: "), std::string::npos) << message;
  EXPECT_NE(message.find(" is missing"), std::string::npos) << message;
  for (const FileBlock& block : file_blocks(files, compare_with_known(files)))
    EXPECT_TRUE(block.not_built.empty()) << block.name << ": " << built_text(block);
}

// The state space's tensors are asked for by families that have one, whatever the values of the file.
TEST(UnknownArch, StateSpacesAreTold) {
  ModelFiles files = heron_gguf();
  for (const char* part : {"ssm_in.weight", "ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_out.weight", "ssm_dt.bias"})
    add_unknown_tensor(files, std::string("blk.0.") + part, {4, 4});
  auto blocks = file_blocks(files, compare_with_known(files));
  EXPECT_EQ(block_named(blocks, "state space")->text, "as Mamba-2; in 1 of 2 layers");
  EXPECT_NE(block_named(blocks, "state space")->as_in, "");
  add_unknown_tensor(files, "blk.0.ssm_beta.weight", {4, 32});
  blocks = file_blocks(files, compare_with_known(files));
  EXPECT_EQ(block_named(blocks, "state space")->text, "a gated delta net; in 1 of 2 layers");
}

}  // namespace
}  // namespace millrace
