// Levels of columns in vectors of 8 floats.
#if defined(__x86_64__)
#include "kernels/column_levels.h"

namespace millrace {
namespace column_levels_avx2 {

constexpr int64_t kLanes = 8;
#include "kernels/column_levels.inc"

}  // namespace column_levels_avx2

const ColumnLevelKernels& avx2_column_levels() { return column_levels_avx2::kKernels; }

}  // namespace millrace
#endif
