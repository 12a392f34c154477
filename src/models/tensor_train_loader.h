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

// Returns a TensorTrain without modes if the file stores plain rows. Errors: corrupt (the cores do not yield rows of
// `width` values, or do not have fewer values than such a row).
Result<TensorTrain> read_tensor_train(const ModelFiles& files, int64_t width);
// Cheap variant without checks, for a file that read_tensor_train() has accepted.
TensorTrain checked_tensor_train(const ModelFiles& files);

}  // namespace millrace
