// The tensor train of a row (tensor/tensor_train.h) by the TT-SVD (Oseledets, 2011, "Tensor-Train Decomposition").
// Pure functions.
#pragma once

#include "tensor/tensor_train.h"

namespace millrace {

// Rows of `width` values as arrays of at most `modes` modes, nearly equal, the largest first; ranks are at most `rank`,
// and no larger than they are of use. Fewer modes if the width has fewer prime factors.
TensorTrain tensor_train_shape(int64_t width, int modes, int64_t rank);

// Fills `cores` [train.values()] from `row` [train.width()], which is finite. Returns the squared error.
double tensor_train_svd(const TensorTrain& train, const float* row, float* cores);

}  // namespace millrace
