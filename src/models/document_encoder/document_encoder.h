// CEPE's encoder (Yen, Gao and Chen, 2024, Long-Context Language Modeling with Parallel Context Encoding, section 2): a
// small Llama whose tokens see each other in both directions. It reads one piece of a document at a time, as if nothing
// else existed:
//
//   x = E[token];  of each layer: x = x + attention(norm(x));  x = x + MLP(norm(x));  hidden state = norm(x)
//
// Its files are the folder of the whole checkpoint: `encoder_config` in config.json has its sizes, and the tensors
// encoder.embed_tokens, encoder.layers.{l}.* and encoder.norm are its own. The decoder's side is cross_layers.h.
//
// Immutable after load(); forward() changes only its arguments.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/draft_heads/draft_files.h"
#include "models/forward_context.h"
#include "models/model.h"

namespace millrace {

inline constexpr const char* kEncoderAccount = "document encoder";  // account of its memory
inline constexpr const char* kEncoderAdvice = "raise the budget, or start without context=cepe";

class DocumentEncoder {
 public:
  // `files`: open_draft_files(). Errors: corrupt (a key or tensor), unsupported (another kind of encoder), resource.
  static Result<std::unique_ptr<DocumentEncoder>> load(std::shared_ptr<const ModelFiles> files,
                                                       const KernelTable& table, ThreadPool& pool,
                                                       std::shared_ptr<MemoryAccounts> accounts);

  const ArchSpec& spec() const { return spec_; }        // spec of a model without a head
  int64_t longest() const { return spec_.context; }     // tokens of a piece that it was trained for
  TokenId start_token() const { return start_token_; }  // with which a text begins; below 0: none
  int64_t bytes() const { return weights_.bytes(); }    // packed

  // Computes the hidden states of the tokens [tokens, width], in context.normed. Tokens are below spec().vocab, at
  // least one, and no more than the context's limits. `blocks` of context.kv() cover them; their contents before and
  // after mean nothing. `batch` is scratch.
  void forward(std::span<const TokenId> tokens, std::span<const BlockId> blocks, Batch& batch,
               ForwardContext& context) const;

 private:
  DocumentEncoder() = default;
  Result<void> read_config();
  Result<void> load_weights(const KernelTable& table, ThreadPool& pool, std::shared_ptr<MemoryAccounts> accounts);
  Result<void> load_layer(class WeightLoader& loader, int64_t index);
  ActivationRows add_and_norm(bool add, const NormWeights& norm, const Weight* next, int64_t tokens,
                              ForwardContext& context) const;

  std::shared_ptr<const ModelFiles> files_;
  ArchSpec spec_;
  TokenId start_token_ = -1;
  DraftWeights weights_;
  Tensor embedding_;  // read in place
  std::vector<LayerWeights> layers_;
  NormWeights output_norm_;
  DraftRopes ropes_;
};

}  // namespace millrace
