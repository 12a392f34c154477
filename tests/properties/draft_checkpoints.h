// Checkpoints that tests write: a model whose next token is a fixed function of its last one, and what drafts for it;
// and layers of drawn weights.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "base/philox.h"

namespace millrace::testing {

namespace fs = std::filesystem;

inline constexpr int64_t kTokens = 32;  // also the width: every token is a separate direction

// next(t): no power of it that a branch has is the identity.
inline int64_t next_token(int64_t t, int64_t times = 1) {
  for (; times > 0; --times) t = (5 * t + 7) % kTokens;
  return t;
}

using Rows = std::vector<std::vector<float>>;
inline Rows zeros(int64_t rows, int64_t cols) {
  return Rows(static_cast<size_t>(rows), std::vector<float>(static_cast<size_t>(cols)));
}
// Row next(t) has `value` in column t.
inline Rows moves(float value, int64_t times) {
  Rows rows = zeros(kTokens, kTokens);
  for (int64_t t = 0; t < kTokens; ++t) rows[static_cast<size_t>(next_token(t, times))][static_cast<size_t>(t)] = value;
  return rows;
}
inline Rows beside(const std::vector<Rows>& parts) {
  Rows all = parts[0];
  for (size_t p = 1; p < parts.size(); ++p)
    for (size_t r = 0; r < all.size(); ++r) all[r].insert(all[r].end(), parts[p][r].begin(), parts[p][r].end());
  return all;
}
inline Rows ones() { return {std::vector<float>(kTokens, 1.0f)}; }

// A Hugging Face folder.
class Checkpoint {
 public:
  Checkpoint(const fs::path& folder, int64_t layers, const std::string& arch = "LlamaForCausalLM") : folder_(folder) {
    config_ = {{"architectures", {arch}},      {"model_type", "llama"},          {"hidden_size", kTokens},
               {"intermediate_size", kTokens}, {"num_attention_heads", 2},       {"num_key_value_heads", 1},
               {"num_hidden_layers", layers},  {"max_position_embeddings", 256}, {"rms_norm_eps", 1e-6},
               {"vocab_size", kTokens}};
  }
  nlohmann::ordered_json& config() { return config_; }
  void add(const std::string& name, const Rows& rows, bool vector = false) {
    nlohmann::ordered_json shape = {std::ssize(rows), std::ssize(rows[0])};
    if (vector) shape = {std::ssize(rows[0])};
    std::string bytes;
    for (const auto& row : rows) bytes.append(reinterpret_cast<const char*>(row.data()), row.size() * 4);
    add_bytes(name, "F32", shape, bytes);
  }
  void add_bytes(const std::string& name, const char* type, const nlohmann::ordered_json& shape,
                 const std::string& bytes) {
    header_[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  // A layer that adds nothing.
  void add_layer(const std::string& prefix, int64_t read) {
    const int64_t kv = kTokens / 2;
    add(prefix + "self_attn.q_proj.weight", zeros(kTokens, read));
    add(prefix + "self_attn.k_proj.weight", zeros(kv, read));
    add(prefix + "self_attn.v_proj.weight", zeros(kv, read));
    add(prefix + "self_attn.o_proj.weight", zeros(kTokens, kTokens));
    add(prefix + "post_attention_layernorm.weight", ones(), true);
  }
  void add_mlp(const std::string& prefix, const Rows& gate, const Rows& down) {
    add(prefix + "mlp.gate_proj.weight", gate);
    add(prefix + "mlp.up_proj.weight", gate);
    add(prefix + "mlp.down_proj.weight", down);
  }
  std::string write() {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << config_.dump();
    std::string text = header_.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t size = text.size();
    std::ofstream file(folder_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << text << data_;
    return folder_.string();
  }

 private:
  fs::path folder_;
  nlohmann::ordered_json config_, header_;
  std::string data_;
};

// Embeddings are the unit vectors, layers add nothing, and the head moves on.
inline std::string write_target(const fs::path& folder) {
  Checkpoint c(folder, 7);
  c.add("model.embed_tokens.weight", moves(1, 0));
  for (int i = 0; i < 7; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    c.add(prefix + "input_layernorm.weight", ones(), true);
    c.add_layer(prefix, kTokens);
    c.add_mlp(prefix, zeros(kTokens, kTokens), zeros(kTokens, kTokens));
  }
  c.add("model.norm.weight", ones(), true);
  c.add("lm_head.weight", moves(8, 1));
  return c.write();
}

// Head i knows the token i + 2 places behind.
inline std::string write_medusa(const fs::path& folder) {
  Checkpoint c(folder, 1);
  c.config() = {{"medusa_num_heads", 3}, {"medusa_num_layers", 1}};
  for (int i = 0; i < 3; ++i) {
    c.add(fmt::format("medusa_head.{}.0.linear.weight", i), zeros(kTokens, kTokens));
    c.add(fmt::format("medusa_head.{}.0.linear.bias", i), zeros(1, kTokens), true);
    c.add(fmt::format("medusa_head.{}.1.weight", i), moves(8, i + 2));
  }
  return c.write();
}

// From the token alone, or from the feature before it alone.
inline std::string write_eagle(const fs::path& folder, bool from_feature) {
  Checkpoint c(folder, 1);
  c.add("fc.weight", from_feature ? beside({zeros(kTokens, kTokens), moves(1, 1)})
                                  : beside({moves(5.657f, 0), zeros(kTokens, kTokens)}));
  c.add_layer("layers.0.", kTokens);
  c.add_mlp("layers.0.", zeros(kTokens, kTokens), zeros(kTokens, kTokens));
  return c.write();
}

// The model's layers and the adapter add nothing: the model's head knows the next token.
inline std::string write_kangaroo(const fs::path& folder) {
  Checkpoint c(folder, 1);
  c.add_layer("layers.0.", kTokens);
  c.add("layers.0.input_layernorm.weight", ones(), true);
  c.add("norm.weight", ones(), true);
  return c.write();
}

// The MLP moves the feature on; the head's vocabulary is the other way round.
inline std::string write_eagle3(const fs::path& folder) {
  Checkpoint c(folder, 1, "LlamaForCausalLMEagle3");
  c.config()["draft_vocab_size"] = kTokens;
  c.add("fc.weight", beside({zeros(kTokens, kTokens), moves(1, 0), zeros(kTokens, kTokens)}));
  c.add("midlayer.hidden_norm.weight", ones(), true);
  c.add("midlayer.input_layernorm.weight", ones(), true);
  c.add_layer("midlayer.", 2 * kTokens);
  const float in = std::sqrt(static_cast<float>(kTokens)), out = in * in / (1 + std::exp(-in));  // silu(in) * in
  Rows down = moves(1 / out, 1);
  for (size_t t = 0; t < down.size(); ++t) down[t][t] -= 1 / out;
  c.add_mlp("midlayer.", moves(1, 0), down);
  c.add("norm.weight", ones(), true);
  Rows head = moves(8, 1);
  std::ranges::reverse(head);
  c.add("lm_head.weight", head);
  std::string offsets;
  for (int64_t i = 0; i < kTokens; ++i) {
    const int64_t offset = kTokens - 1 - 2 * i;
    offsets.append(reinterpret_cast<const char*>(&offset), 8);
  }
  c.add_bytes("d2t", "I64", {kTokens}, offsets);
  return c.write();
}

inline Rows drawn(uint64_t seed, int64_t rows, int64_t cols, double gain) {
  Rows all = zeros(rows, cols);
  for (size_t r = 0; r < all.size(); ++r)
    for (size_t c = 0; c < all[r].size(); ++c)
      all[r][c] =
          static_cast<float>((2 * philox_uniform(seed, r, c) - 1) * gain / std::sqrt(static_cast<double>(cols)));
  return all;
}

inline void add_drawn_attention(Checkpoint& c, const std::string& prefix) {
  const int64_t kv = kTokens / 2;
  c.add(prefix + "self_attn.q_proj.weight", drawn(1, kTokens, kTokens, 3));
  c.add(prefix + "self_attn.k_proj.weight", drawn(2, kv, kTokens, 3));
  c.add(prefix + "self_attn.v_proj.weight", drawn(3, kv, kTokens, 4));
  c.add(prefix + "self_attn.o_proj.weight", drawn(4, kTokens, kTokens, 4));
}

inline void add_drawn_layer(Checkpoint& c, const std::string& prefix) {
  add_drawn_attention(c, prefix);
  c.add(prefix + "post_attention_layernorm.weight", ones(), true);
  c.add_mlp(prefix, drawn(5, kTokens, kTokens, 2), drawn(6, kTokens, kTokens, 2));
}

}  // namespace millrace::testing
