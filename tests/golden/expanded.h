// A model whose matrices of blocks are replaced by their values in F32.
#pragma once

#include <gtest/gtest.h>

#include "formats/format.h"
#include "loader/model_files.h"
#include "tensor/aligned_buffer.h"

namespace millrace::testing {

inline void expand_blocks(ModelFiles& files) {
  for (StoredTensor& stored : files.tensors) {
    Tensor& tensor = stored.tensor;
    if (!tensor.format || tensor.format->block_values == 1) continue;
    auto buffer = AlignedBuffer::allocate(tensor.values() * 4, "values");
    ASSERT_TRUE(buffer.ok());
    tensor.format->decode(tensor.data, buffer->as<float>(), tensor.values());
    if (stored.scales.values.size() == 1)
      for (int64_t i = 0; i < tensor.values(); ++i) buffer->as<float>()[i] *= stored.scales.values.front();
    stored.scales = {};
    tensor.format = find_format("f32");
    tensor.data = buffer->data();
    tensor.bytes = tensor.values() * 4;
    files.buffers.push_back(std::make_shared<AlignedBuffer>(std::move(*buffer)));
  }
}

}  // namespace millrace::testing
