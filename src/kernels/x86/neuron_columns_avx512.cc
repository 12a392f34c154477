// Products of columns in vectors of 64 bytes.
#if defined(__x86_64__)
#include "kernels/neuron_columns.h"

namespace millrace {
namespace neuron_columns_avx512 {

#include "kernels/neuron_columns.inc"

}  // namespace neuron_columns_avx512

const NeuronColumnKernels& avx512_neuron_columns() { return neuron_columns_avx512::kKernels; }

}  // namespace millrace
#endif
