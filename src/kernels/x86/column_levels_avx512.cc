// Levels of columns in vectors of 16 floats.
#if defined(__x86_64__)
#include "kernels/column_levels.h"

namespace millrace {
namespace column_levels_avx512 {

constexpr int64_t kLanes = 16;
#include "kernels/column_levels.inc"

}  // namespace column_levels_avx512

const ColumnLevelKernels& avx512_column_levels() { return column_levels_avx512::kKernels; }

}  // namespace millrace
#endif
