// Kangaroo's adapter (Liu et al., 2024, section 3.2), which takes the place of a model's layers behind an early exit:
// attention and two norms,
//
//   x = h + attention(norm(h));  logits = head of norm(x)
//
// where h is the residual stream before layer `exit` of the model, whose head it is.
//
// Tensors: layers.0.input_layernorm, layers.0.self_attn.{q,k,v,o}_proj and norm.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "models/draft_heads/draft_files.h"
#include "models/forward_context.h"
#include "models/model.h"

namespace millrace {

class ExitAdapter {
 public:
  // `target`, for which it drafts, outlives it; streams have up to `context` tokens. Errors: those of
  // read_draft_config(); corrupt (a tensor), user (`exit` is not before a layer), resource.
  static Result<std::unique_ptr<ExitAdapter>> load(const std::string& path, int64_t exit, const Model& target,
                                                   const KernelTable& table, ThreadPool& pool, int64_t context,
                                                   std::shared_ptr<MemoryAccounts> accounts = nullptr);

  // Spec of a model with one layer.
  const ArchSpec& spec() const { return spec_; }
  int64_t exit() const { return exit_; }
  std::string identity() const;
  int64_t bytes() const { return weights_.bytes(); }  // packed

  // Stores the keys and values of the batch, whose streams h are `rows` [tokens, width]. `context`: of spec().
  void store(const Batch& batch, const float* rows, ForwardContext& context) const;
  // Runs the adapter; also writes x to context.residual [tokens, width].
  void forward(const Batch& batch, const float* rows, ForwardContext& context) const;
  // After forward(): logits of these tokens of the batch, to context.logits [rows, vocab].
  void head(std::span<const int32_t> rows, ForwardContext& context) const;

 private:
  explicit ExitAdapter(const Model& target) : target_(target) {}
  Result<void> load_weights(const KernelTable& table, ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts);

  const Model& target_;
  ArchSpec spec_;
  int64_t exit_ = 0;
  std::shared_ptr<const ModelFiles> files_;
  DraftWeights weights_;
  LayerWeights layer_;
  NormWeights output_norm_;
  DraftRopes ropes_;
};

}  // namespace millrace
