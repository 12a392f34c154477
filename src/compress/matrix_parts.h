// Converts between a matrix with parts (tensor/weight_parts.h), its stored tensors, and the equivalent single matrix.
// W: the stored matrix. T: the change of its input. O: the change of its output. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compress/pass.h"

namespace millrace {

// A tensor that is stored in addition to those of the plan.
struct PartTensor {
  std::string name;
  const Format* format = nullptr;
  std::vector<int64_t> dims;
  std::vector<uint8_t> bytes;
  bool of_factored = false;  // true: the matrix itself is not stored
};

// Returns the tensors of the matrix's parts, in the form that models/weight_parts_loader.h reads.
std::vector<PartTensor> part_tensors(const PassMatrix& matrix);

// Replaces the stored rows W by W T.
void apply_input_change(const InputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool);
// apply_output_change() replaces the stored rows W by O W. store_rows() is its inverse; no scale may be zero.
void apply_output_change(const OutputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool);
void store_rows(const OutputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool);
// Converts values of the stored matrix W to those of the matrix that multiplies the unchanged input: O W T, plus the
// low-rank pair, the sparse matrix and the columns. Shifts, the bias and the rounding of inputs have no effect on the
// result.
void apply_parts(const PassMatrix& matrix, std::vector<float>& values, ThreadPool& pool);
// Replaces one row of a matrix by the row to store with this input change: row T^-1. No scale may be zero.
void store_row(const InputChange& change, float* row, int64_t cols, std::vector<float>& scratch);
// Stores the matrix's columns in this order, and adds the input change that reorders the inputs at run time. The matrix
// must have no input change yet.
void order_inputs(PassMatrix& matrix, const std::vector<int32_t>& order, ThreadPool& pool);

// Returns the second moments of t(x), the input that the stored matrix multiplies, computed from those of x.
SecondMoments changed_moments(const SecondMoments& moments, const InputChange& change);
inline int64_t changed_moments_bytes(int64_t cols) { return SecondMoments::bytes(cols) + cols * cols * 8; }
// Adds a sparse matrix that corrects some weights to their exact values: it holds `values` minus the decoded weights.
// `exact`: [rows, cols], 1 for these weights. The matrix must have no sparse part and no input change yet.
void add_sparse_rest(PassMatrix& matrix, const std::vector<uint8_t>& exact);

}  // namespace millrace
