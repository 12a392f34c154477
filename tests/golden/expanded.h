// Models whose matrices of blocks, or of indices into a codebook, are replaced by their values in F32.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include "formats/format.h"
#include "loader/model_files.h"
#include "tensor/aligned_buffer.h"
#include "tensor/codebook.h"

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

// Row `row` of the words of round_codewords().
inline void decode_words(const Codebook& book, const uint8_t* indices, int64_t row, int64_t cols, float* out) {
  const float scale = book.word_scale * book.row_scales[static_cast<size_t>(row)];
  for (int64_t c = 0; c < cols; ++c) {
    int sum = 0;
    for (int64_t m = 0; m < book.books; ++m) {
      const uint32_t index = codebook_index(book, indices, c / book.dim * book.books + m);
      sum += book.words[static_cast<size_t>(((m << book.bits) + index) * book.dim + c % book.dim)];
    }
    out[c] = scale * static_cast<float>(sum);
  }
}

// Expands codebooks with one table, entry by entry, or their words; their tensors stay, without an effect.
inline void expand_codebooks(ModelFiles& files, bool words = false) {
  constexpr std::string_view kWeight = "weight";
  for (StoredTensor& stored : files.tensors) {
    if (!stored.name.ends_with(kWeight)) continue;
    const std::string prefix = stored.name.substr(0, stored.name.size() - kWeight.size());
    StoredTensor *tables = nullptr, *scales = nullptr;
    for (StoredTensor& other : files.tensors) {
      if (other.name == prefix + "codebook") tables = &other;
      if (other.name == prefix + "codebook_scales") scales = &other;
    }
    if (!tables || !scales) continue;
    const Tensor& entries = tables->tensor;
    Codebook book{.bits = std::countr_zero(static_cast<uint64_t>(entries.dims[2])),
                  .dim = static_cast<int>(entries.dims[3]),
                  .books = static_cast<int>(entries.dims[1])};
    Tensor& tensor = stored.tensor;
    const int64_t rows = tensor.rows(), row_bytes = tensor.cols();
    const int64_t cols = row_bytes * 8 / (book.bits * book.books) * book.dim;
    book.rows_per_table = rows;
    book.cols_per_table = cols;
    book.tables_per_row = 1;
    book.entries.resize(static_cast<size_t>(book.table_values()));
    std::memcpy(book.entries.data(), entries.data, book.entries.size() * sizeof(uint16_t));
    book.row_scales.resize(static_cast<size_t>(rows));
    std::memcpy(book.row_scales.data(), scales->tensor.data, book.row_scales.size() * sizeof(float));
    auto buffer = AlignedBuffer::allocate(rows * cols * 4, "values");
    ASSERT_TRUE(buffer.ok());
    if (words) round_codewords(book);
    ASSERT_EQ(codebook_is_codewords(book), words);
    for (int64_t r = 0; r < rows; ++r) {
      float* out = buffer->as<float>() + r * cols;
      if (words)
        decode_words(book, tensor.data + r * row_bytes, r, cols, out);
      else
        decode_codebook(book, tensor.data + r * row_bytes, r, 0, cols, out);
    }
    tensor.dims[1] = cols;
    tensor.format = find_format("f32");
    tensor.data = buffer->data();
    tensor.bytes = rows * cols * 4;
    stored.type_name = "F32";
    tables->name += "_unused";
    scales->name += "_unused";
    files.buffers.push_back(std::make_shared<AlignedBuffer>(std::move(*buffer)));
  }
}

}  // namespace millrace::testing
