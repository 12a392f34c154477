// Router: chooses the experts of a token in a layer with a mixture of experts. Each router is one file under routers/
// and one name in routers/builtin.cc. A token's choice depends on its own row alone, so the same request has the same
// bits in any batch; this is why no router has an expert capacity.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/registry.h"
#include "kernels/kernel_table.h"

namespace millrace {

struct MoeSpec;

struct Router {
  std::string_view name;
  std::string_view summary;
  std::string_view paper;
  Loss loss = Loss::lossy;
  std::string_view test;
  // Prepares the spec at load, such as the number of experts per token.
  void (*configure)(MoeSpec& moe) = nullptr;  // null: the model's own values
  // logits [moe.experts] of one token, which it may overwrite, to moe.used experts and the weights of their outputs.
  void (*choose)(const MoeSpec& moe, const KernelTable& kernels, float* logits, int32_t* chosen, float* weights);
};

const Registry<const Router*>& routers();

}  // namespace millrace
