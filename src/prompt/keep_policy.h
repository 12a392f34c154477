// KeepPolicy: a network that was trained to say whether to keep a text or a token of a prompt, from its vector: two
// layers with a GELU between them, as CoT-Influx and PCRL have. PolicyFile: the networks of one safetensors file.
//
//   x [inputs] -> W1 x + b1 -> GELU (with erf) -> W2 h + b2 -> one logit: sigmoid; two logits (drop, keep): softmax
//
//   tensors of the network NAME, in F32, F16 or BF16, named as in a torch.nn.Sequential:
//     NAME.0.weight [hidden, inputs]    NAME.0.bias [hidden], may be absent
//     NAME.2.weight [1 or 2, hidden]    NAME.2.bias [1 or 2], may be absent
//
// Sums are in double and in an order that depends on their length alone: the same bits on every instruction set.
// Immutable, so several threads may use one at once.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "prompt/compressor.h"

namespace millrace {

class KeepPolicy {
 public:
  int64_t inputs() const { return inputs_; }
  // Returns the probability of keeping what has this vector [inputs].
  double keep_probability(std::span<const float> x) const;

 private:
  friend class PolicyFile;
  int64_t inputs_ = 0, hidden_ = 0, outputs_ = 0;
  std::vector<float> first_, first_bias_;    // [hidden, inputs], [hidden]; empty: no bias
  std::vector<float> second_, second_bias_;  // [outputs, hidden], [outputs]; empty: no bias
};

class PolicyFile final : public PromptFile {
 public:
  // Reads the networks with these names; further tensors are ignored. Errors: those of the file; user (a network is
  // absent), corrupt (sizes that do not fit, NaN or infinity), unsupported (a type or size).
  static Result<std::shared_ptr<const PolicyFile>> open(const std::string& path, const std::vector<std::string>& names);

  // `name`: one of the names given to open().
  const KeepPolicy& network(const std::string& name) const { return networks_.at(name); }
  // Returns an error if the network does not read vectors of this width. Errors: user.
  Result<void> check_width(const std::string& name, size_t width) const;

 private:
  std::string path_;
  std::map<std::string, KeepPolicy> networks_;
};

}  // namespace millrace
