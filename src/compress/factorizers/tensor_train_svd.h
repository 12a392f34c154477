// Computes the tensor train of a row (tensor/tensor_train.h) by TT-SVD (Oseledets, 2011, "Tensor-Train Decomposition").
// Pure functions.
#pragma once

#include "tensor/tensor_train.h"

namespace millrace {

// Chooses the shape for rows of `width` values: at most `modes` modes of nearly equal size, the largest first. There
// are fewer modes if the width has fewer prime factors. Ranks are at most `rank`, and at most the rank of an exact
// train.
TensorTrain tensor_train_shape(int64_t width, int modes, int64_t rank);

// Fills `cores` [train.values()] from `row` [train.width()], whose values must be finite. Returns the squared error.
double tensor_train_svd(const TensorTrain& train, const float* row, float* cores);

}  // namespace millrace
