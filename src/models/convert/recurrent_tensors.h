// The tensors of recurrent mixers, as an output has them: names, sizes, the order of heads, and which values are
// computed. Where their values are stored is found by the caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/arch_spec.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// `prefix` is "blk.3."; `width` is the model's. `from` and `to` are the sizes as the input and the output state them:
// they may differ in the order of heads (SsmSpec::tiled), in whether A is stored as a logarithm, and in whether the
// convolution has a bias, which is then zeros.

// models/mixers/gated_delta_net.cc. `fused`: the rates of update and the step sizes are rows of one matrix.
std::vector<SourceTensor> delta_net_tensors(const std::string& prefix, int64_t width, const SsmSpec& from,
                                            const SsmSpec& to, bool fused);
// models/mixers/mamba.cc
std::vector<SourceTensor> mamba_tensors(const std::string& prefix, int64_t width, const SsmSpec& from,
                                        const SsmSpec& to);
// models/mixers/mamba2.cc. `from` says whether there are a bias of the convolution and a norm behind the gate.
std::vector<SourceTensor> mamba2_tensors(const std::string& prefix, int64_t width, const SsmSpec& from,
                                         const SsmSpec& to);

}  // namespace millrace
