// The multi-token-prediction layer of DeepSeek-V3 (DeepSeek-AI, 2024, DeepSeek-V3 Technical Report, section 2.2), which
// is stored behind the model's layers and drafts for it:
//
//   x = EH [norm(embedding); norm(feature)];  then a layer like the model's last one with attention;
//   feature = norm(x);
//   logits = head of the feature
//
// The model's features are its final hidden states, after the last norm; the layer's features are after its own norm.
// If there are several such layers, the first one is used for all tokens of a draft.
//
// Tensors, of layer L = num_hidden_layers: those of a layer, and model.layers.L.enorm, hnorm, eh_proj, shared_head.norm
// and shared_head.head; in GGUF blk.L.nextn.enorm, hnorm, eh_proj, shared_head_norm and shared_head_head. Folders of
// Qwen3-Next and Qwen3.5 have mtp.layers.0, mtp.pre_fc_norm_embedding, pre_fc_norm_hidden, fc and norm. A layer without
// a head or a last norm uses the model's; the embedding table is the model's, a copy of it is not read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/arch.h"
#include "models/draft_heads/draft_files.h"
#include "models/draft_heads/draft_layer.h"

namespace millrace {

// Names of the layer's own tensors in folders of Qwen3-Next and Qwen3.5, which number such layers from 0.
extern const Arch kQwenMtpParts;

class MtpLayer final : public DraftLayer {
 public:
  // `files` are those of `target`, which outlives it. Errors: unsupported (there is no such layer), corrupt (a tensor),
  // resource.
  static Result<std::unique_ptr<MtpLayer>> load(std::shared_ptr<const ModelFiles> files, const Model& target,
                                                const KernelTable& table, ThreadPool& pool, int64_t context,
                                                std::shared_ptr<MemoryAccounts> accounts = nullptr);

  std::string identity() const override { return "drafts from the model's own files\n"; }
  int64_t bytes() const override { return weights_.bytes(); }
  int64_t scratch_bytes(int64_t tokens) const override;
  void forward(const Batch& batch, const float* features, uint8_t* scratch, ForwardContext& context) const override;
  void head(std::span<const int32_t> rows, ForwardContext& context) const override;

 private:
  explicit MtpLayer(const Model& target) : DraftLayer(target) {}
  Result<void> load_layer(const std::string& prefix);
  void add_out(int64_t tokens, ForwardContext& context) const;
  ActivationRows normed_for(const NormWeights& norm, const Weight& first, int64_t tokens,
                            ForwardContext& context) const;

  std::shared_ptr<const ModelFiles> files_;
  bool numbered_apart_ = false;  // a folder with mtp.layers.0
  DraftWeights weights_;
  LayerWeights layer_;
  Weight join_;  // EH
  NormWeights token_norm_, feature_norm_, output_norm_;
  Weight head_;  // absent: the model's
  std::vector<std::vector<double>> rope_frequencies_;
  std::vector<float> rope_scales_;
};

}  // namespace millrace
