#include "kernels/column_levels.h"

#include "base/cpu.h"

namespace millrace {
namespace column_levels_portable {

constexpr int64_t kLanes = 4;  // of every processor's baseline
#include "kernels/column_levels.inc"

}  // namespace column_levels_portable

const ColumnLevelKernels& portable_column_levels() { return column_levels_portable::kKernels; }

const ColumnLevelKernels& column_level_kernels() {
#if defined(__x86_64__)
  static const ColumnLevelKernels& chosen = []() -> const ColumnLevelKernels& {
    const auto isa = select_isa();
    if (isa.ok() && isa->includes(Isa::avx2.with(Feature::avx512))) return avx512_column_levels();
    if (isa.ok() && isa->includes(Isa::avx2)) return avx2_column_levels();
    return portable_column_levels();
  }();
  return chosen;
#else
  return portable_column_levels();
#endif
}

}  // namespace millrace
