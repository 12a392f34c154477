// DraftLayer: a decoder layer that was trained to draft from a model's hidden states. It reads a token together with
// the feature of the token before it, and computes the feature of this token. From that feature the next token is drawn
// and the next feature is computed. For tokens that the model has run, features are those of the model. Immutable.
#pragma once

#include <array>
#include <span>
#include <string>

#include "models/forward_context.h"
#include "models/model.h"

namespace millrace {

class DraftLayer {
 public:
  virtual ~DraftLayer() = default;

  // Spec of a model with one layer, whose vocabulary is the draft's.
  const ArchSpec& spec() const { return spec_; }
  int64_t width() const { return spec_.width; }
  int64_t target_vocab() const { return target_.spec().vocab; }
  virtual bool own_vocabulary() const { return false; }
  // The model's token; `token` is one of spec().vocab.
  virtual TokenId target_token(int64_t token) const { return static_cast<TokenId>(token); }
  virtual std::string identity() const = 0;
  virtual int64_t bytes() const = 0;  // bytes of the packed weights

  // The model's features are its final hidden states, after the last norm; or made of its residual streams before three
  // of its layers.
  virtual bool joins() const { return false; }
  virtual std::array<int64_t, 3> taps() const { return {}; }
  // Features [tokens, width] of the three residual streams [tokens, 3 width].
  virtual void join(const float* /*taps*/, int64_t /*tokens*/, uint8_t* /*scratch*/, ThreadPool& /*pool*/,
                    float* /*features*/) const {}

  // Returns true if the layer reads features. Otherwise it reads tokens and, in cross(), the model's keys and values.
  virtual bool reads_features() const { return true; }
  // Without features, in place of forward(): stores the batch's keys and values.
  virtual void store(const Batch& /*batch*/, ForwardContext& /*context*/) const {}
  // Runs the batch likewise. `crossing`: the batch again, whose tokens see the keys and values that the model has
  // computed.
  virtual void cross(const Batch& /*batch*/, const Batch& /*crossing*/, ForwardContext& /*context*/) const {}

  // Bytes of scratch for a pass over `tokens` tokens.
  virtual int64_t scratch_bytes(int64_t /*tokens*/) const { return 0; }
  // Runs the batch and stores its keys and values. `features`: [tokens, width]; row t is the feature of the token
  // before token t. The tokens' own features are then in context.residual [tokens, width]. `context`: for spec().
  virtual void forward(const Batch& /*batch*/, const float* /*features*/, uint8_t* /*scratch*/,
                       ForwardContext& /*context*/) const {}
  // After forward() or cross(): logits of these tokens of the batch, to context.logits [rows, spec().vocab].
  virtual void head(std::span<const int32_t> rows, ForwardContext& context) const = 0;

 protected:
  explicit DraftLayer(const Model& target) : target_(target) {}

  const Model& target_;
  ArchSpec spec_;
};

}  // namespace millrace
