// select_from for every instruction set that cannot move the chosen lanes of a vector together.
#include <algorithm>
#include <cfloat>

#include "kernels/ops.h"

namespace millrace {
namespace {

// Blocks without such a logit take a comparison that compilers make vector code of; in the others, a store for each
// logit, kept or not, is faster than a branch.
int64_t select_from(const float* x, int64_t n, float least, int32_t first, Candidate* out) noexcept {
  constexpr int64_t kBlock = 64;
  int64_t kept = 0;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t end = std::min(at + kBlock, n);
    bool any = false;
    for (int64_t i = at; i < end; ++i) any |= x[i] >= least;
    if (!any) continue;
    for (int64_t i = at; i < end; ++i) {
      out[kept] = {std::min(x[i], FLT_MAX), first + static_cast<int32_t>(i)};
      kept += x[i] >= least ? 1 : 0;
    }
  }
  return kept;
}

}  // namespace

void add_select_ref(KernelTable& table) { table.select_from = select_from; }

}  // namespace millrace
