#include "models/lora/rows.h"

#include <algorithm>

#include "kernels/activation.h"
#include "models/arch_spec.h"

namespace millrace {
namespace {

struct Sizes {
  int64_t rounded, inner, product;
  int64_t sum() const { return rounded + inner + product; }
};

Sizes sizes_of(const ArchSpec& spec, int64_t rank) {
  int64_t heads = spec.heads * spec.head_dim, hidden = std::max(spec.hidden, spec.moe.shared_hidden);
  for (const LayerSpec& layer : spec.layers) {
    heads = std::max({heads, layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim});
    hidden = std::max(hidden, layer.hidden);
  }
  const int64_t widest = std::max({spec.width, heads, spec.kv_heads * spec.head_dim, hidden, spec.vocab});
  const int64_t input = std::max({spec.width, heads, hidden, rank});
  return {LoraRows::kRows * activation_row_bytes(Activation::f32, input), LoraRows::kRows * rank * 4,
          LoraRows::kRows * widest * 4};
}

}  // namespace

int64_t LoraRows::wanted(const ArchSpec& spec, int64_t rank) const {
  if (rank <= rank_) return 0;
  return sizes_of(spec, rank).sum() - (rank_ > 0 ? sizes_of(spec, rank_).sum() : 0);
}

Result<void> LoraRows::reserve(const ArchSpec& spec, int64_t rank) {
  if (rank <= rank_) return {};
  const Sizes sizes = sizes_of(spec, rank);
  MILLRACE_TRY(rounded, AlignedBuffer::allocate(sizes.rounded, "adapters"));
  MILLRACE_TRY(inner, AlignedBuffer::allocate(sizes.inner, "adapters"));
  MILLRACE_TRY(product, AlignedBuffer::allocate(sizes.product, "adapters"));
  rank_ = rank;
  return {};
}

void LoraRows::keep(std::span<const int32_t> rows) {
  if (runs.empty()) return;
  kept_.clear();
  auto run = runs.begin();
  for (size_t i = 0; i < rows.size(); ++i) {
    while (run != runs.end() && run->begin + run->count <= rows[i]) ++run;
    if (run == runs.end()) break;
    if (rows[i] < run->begin) continue;
    const auto at = static_cast<int64_t>(i);
    if (!kept_.empty() && kept_.back().mix == run->mix && kept_.back().begin + kept_.back().count == at)
      ++kept_.back().count;
    else
      kept_.push_back({at, 1, run->mix});
  }
  runs.swap(kept_);
}

}  // namespace millrace
