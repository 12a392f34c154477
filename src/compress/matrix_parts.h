// The parts of a matrix (tensor/weight_parts.h) in a compression: how a matrix with parts is stored, and which matrix
// it amounts to. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compress/pass.h"

namespace millrace {

// A tensor beside those of the plan.
struct PartTensor {
  std::string name;
  const Format* format = nullptr;
  std::vector<int64_t> dims;
  std::vector<uint8_t> bytes;
};

// The tensors of the matrix's parts, as models/weight_parts_loader.h reads them; low-rank pairs are stored as F16.
std::vector<PartTensor> part_tensors(const PassMatrix& matrix);

// W T, of stored rows with an input change.
void apply_input_change(const InputChange& change, int64_t cols, std::vector<float>& values, ThreadPool& pool);
// Values of the stored matrix to those of the matrix that multiplies the unchanged input: with the stored W, W T, and
// the sum with the low-rank pair and the sparse matrix.
void apply_parts(const PassMatrix& matrix, std::vector<float>& values, ThreadPool& pool);
// The other way round for one row of a matrix that is about to be stored with such an input change: W T^-1. No scale
// may be zero.
void store_row(const InputChange& change, float* row, int64_t cols, std::vector<float>& scratch);

}  // namespace millrace
