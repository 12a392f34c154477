// Products of a Q8_0 matrix that is stored by columns with a vector of which few values are not zero. Only the columns
// of these values are read. Used for the second matrix of an MLP, whose columns belong to the neurons of the first.
//
// The bits equal those of the dense product (kernels/quant_shape.h, 8 bits): a group of 32 columns adds
// fma(d * scale, dot, y), where `dot` is an exact integer, so that columns with the value 0 change nothing, and a group
// without other columns adds 0.
#pragma once

#include <cstdint>

namespace millrace {

// The values of one vector that are not zero. A group is 32 adjacent columns; groups without values are left out.
struct NeuronColumns {
  const int8_t* const* columns = nullptr;  // levels [rows] of each value's column, ascending
  const int8_t* x = nullptr;               // the value of each column, rounded
  // By group: the end of its columns, the matrix's scales [rows], and the scale of the rounded values.
  const int32_t* ends = nullptr;
  const float* const* scales = nullptr;
  const float* x_scales = nullptr;
  int64_t groups = 0;
};

struct NeuronColumnKernels {
  // Sets y[begin .. end) to the sums of these rows. noexcept, allocates nothing.
  void (*sum)(const NeuronColumns& from, int64_t begin, int64_t end, float* y) = nullptr;
};

const NeuronColumnKernels& portable_neuron_columns();
const NeuronColumnKernels& avx2_neuron_columns();    // x86-64 only
const NeuronColumnKernels& avx512_neuron_columns();  // x86-64 only
const NeuronColumnKernels& neuron_column_kernels();  // the fastest that select_isa() allows

}  // namespace millrace
