#include "kernels/neuron_columns.h"

#include "base/cpu.h"

namespace millrace {
namespace neuron_columns_portable {

#include "kernels/neuron_columns.inc"

}  // namespace neuron_columns_portable

const NeuronColumnKernels& portable_neuron_columns() { return neuron_columns_portable::kKernels; }

const NeuronColumnKernels& neuron_column_kernels() {
#if defined(__x86_64__)
  static const NeuronColumnKernels& chosen = []() -> const NeuronColumnKernels& {
    const auto isa = select_isa();
    if (isa.ok() && isa->includes(Isa::avx2.with(Feature::avx512))) return avx512_neuron_columns();
    if (isa.ok() && isa->includes(Isa::avx2)) return avx2_neuron_columns();
    return portable_neuron_columns();
  }();
  return chosen;
#else
  return portable_neuron_columns();
#endif
}

}  // namespace millrace
