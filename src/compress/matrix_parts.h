// The parts of a matrix (tensor/weight_parts.h) in a compression: how a matrix with parts is stored, and which matrix
// it amounts to. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compress/pass.h"

namespace millrace {

// A tensor in addition to those of the plan.
struct PartTensor {
  std::string name;
  const Format* format = nullptr;
  std::vector<int64_t> dims;
  std::vector<uint8_t> bytes;
  bool of_factored = false;  // the matrix itself is not stored
};

// The tensors of the matrix's parts, as models/weight_parts_loader.h reads them; low-rank pairs are stored as F16.
std::vector<PartTensor> part_tensors(const PassMatrix& matrix);

// W T, of stored rows with an input change.
void apply_input_change(const InputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool);
// O W, of stored rows with an output change; and the other way round, whose scales may not be zero.
void apply_output_change(const OutputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool);
void store_rows(const OutputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool);
// Converts values of the stored matrix W to those of the matrix that multiplies the unchanged input: O W T, plus the
// low-rank pair, the sparse matrix and the columns. Shifts and the bias are no part of a matrix, nor is the rounding of
// inputs.
void apply_parts(const PassMatrix& matrix, std::vector<float>& values, ThreadPool& pool);
// Inverse of apply_parts() for one row of a matrix that is about to be stored with such an input change: W T^-1. No
// scale may be zero.
void store_row(const InputChange& change, float* row, int64_t cols, std::vector<float>& scratch);
// Stores the columns of a matrix without an input change in this order; the inputs are put into it at run time.
void order_inputs(PassMatrix& matrix, const std::vector<int32_t>& order, ThreadPool& pool);

// The second moments of t(x), the input that the stored matrix multiplies, from those of x.
SecondMoments changed_moments(const SecondMoments& moments, const InputChange& change);
inline int64_t changed_moments_bytes(int64_t cols) { return SecondMoments::bytes(cols) + cols * cols * 8; }
// Moves weights whose value must be kept to the sparse matrix, which then holds the difference from the stored matrix:
// `values` minus decoded. `exact`: [rows, cols], 1 for those weights. The matrix has no sparse part and no input change
// yet.
void add_sparse_rest(PassMatrix& matrix, const std::vector<uint8_t>& exact);

}  // namespace millrace
