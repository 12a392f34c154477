#include "tensor/tensor_train.h"

namespace millrace {
namespace {

// All values whose indices begin with those that `before` [rank] is the product of. Returns the end of what it wrote.
float* contract(const TensorTrain& train, int mode, const float* before, const float* core, float* row) {
  const int64_t rank = train.rank_before(mode), size = train.sizes[static_cast<size_t>(mode)];
  const int64_t after = train.ranks[static_cast<size_t>(mode)];
  std::array<float, TensorTrain::kMaxRank> product;
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t b = 0; b < after; ++b) {
      float sum = 0;
      for (int64_t a = 0; a < rank; ++a) sum += before[a] * core[(a * size + i) * after + b];
      product[static_cast<size_t>(b)] = sum;
    }
    if (mode + 1 == train.modes)
      *row++ = product[0];
    else
      row = contract(train, mode + 1, product.data(), core + train.core_values(mode), row);
  }
  return row;
}

}  // namespace

void TensorTrain::decode(const float* cores, float* row) const {
  const float one = 1;
  contract(*this, 0, &one, cores, row);
}

}  // namespace millrace
