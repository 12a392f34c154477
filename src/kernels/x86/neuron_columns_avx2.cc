// Products of columns in vectors of 32 bytes.
#if defined(__x86_64__)
#include "kernels/neuron_columns.h"

namespace millrace {
namespace neuron_columns_avx2 {

#include "kernels/neuron_columns.inc"

}  // namespace neuron_columns_avx2

const NeuronColumnKernels& avx2_neuron_columns() { return neuron_columns_avx2::kKernels; }

}  // namespace millrace
#endif
