// Reads the shape of an embedding table whose rows are stored as tensor trains (tensor/tensor_train.h):
//
//   token_embd.tensor_train [2, modes], F32: sizes of the modes, and the rank after each
//   token_embd.weight [vocab, values], any format: the cores of each row, one after the other
#pragma once

#include "base/result.h"
#include "loader/model_files.h"
#include "tensor/tensor_train.h"

namespace millrace {

inline constexpr const char* kTensorTrain = "token_embd.tensor_train";

// No modes if rows are stored as they are. Errors: corrupt (a shape that gives no row of `width` values, or is no
// smaller than one).
Result<TensorTrain> read_tensor_train(const ModelFiles& files, int64_t width);
// Variant for a file that has passed this check, at little cost.
TensorTrain checked_tensor_train(const ModelFiles& files);

}  // namespace millrace
