// AQLM checkpoints (Egiazarian et al., 2024, Extreme Compression of Large Language Models via Additive Quantization),
// as its library and Transformers write them. Of a [rows, cols] matrix whose columns are cut into vectors of `dim`:
//
//   codes      [rows, cols / dim, books] I8 or I16, of which the lowest nbits_per_codebook bits count
//   codebooks  [books, 2^nbits_per_codebook, 1, dim]
//   scales     [rows, 1, 1, 1]
//
// weight = scale of the row * sum over books of codebooks[book][code]. It becomes a matrix with a codebook
// (tensor/codebook.h), whose entries are F16.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "loader/hf_weights.h"
#include "loader/quantized/methods.h"
#include "tensor/codebook.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// Gives `stored` new memory of this shape, which `model` owns.
Result<uint8_t*> replace(ModelFiles& model, StoredTensor& stored, const char* type, const Format* format,
                         std::initializer_list<int64_t> dims, int64_t value_bytes) {
  int64_t bytes = value_bytes;
  for (int64_t dim : dims) bytes *= dim;
  MILLRACE_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(bytes, stored.name.c_str()));
  Tensor& tensor = stored.tensor;
  tensor.rank = static_cast<int>(dims.size());
  tensor.dims = {1, 1, 1, 1};
  std::copy(dims.begin(), dims.end(), tensor.dims.begin());
  tensor.format = format;
  tensor.data = buffer.data();
  tensor.bytes = bytes;
  stored.type_name = type;
  uint8_t* const memory = buffer.data();
  model.buffers.push_back(std::make_shared<AlignedBuffer>(std::move(buffer)));
  return memory;
}

Result<int> index_bits(const Json& config) {
  const auto found = config.find("nbits_per_codebook");
  const bool fits = found != config.end() && found->is_number_unsigned() && found->get<uint64_t>() >= 1 &&
                    found->get<uint64_t>() <= Codebook::kMaxBits;
  if (fits) return found->get<int>();
  return Error::unsupported(fmt::format(
      "config.json: key 'quantization_config.nbits_per_codebook': must be from 1 to {}", Codebook::kMaxBits));
}

// The shape of codes and codebooks as a Codebook without entries.
Result<Codebook> read_shape(const QuantizedTensors& tensors, const Json& config, const StoredTensor& codes,
                            const StoredTensor& books) {
  MILLRACE_TRY(const int bits, index_bits(config));
  const Tensor &of = books.tensor, &index = codes.tensor;
  if (of.rank != 4 || of.values() == 0 || of.dims[1] != int64_t{1} << bits)
    return tensors.wrong(books, fmt::format("must have 4 dimensions, the second of 2^{} entries", bits));
  if (of.dims[2] != 1)
    return Error::unsupported(fmt::format("tensor {}codebooks: vectors of {} rows (out_group_size) cannot be read",
                                          tensors.prefix(), of.dims[2]));
  const int64_t dim = of.dims[3];
  if (of.dims[0] > Codebook::kMaxBooks || dim > Codebook::kMaxDim || !std::has_single_bit(static_cast<uint64_t>(dim)))
    return Error::unsupported(
        fmt::format("tensor {}codebooks: {} books of {} values cannot be read: at most {} of 1, 2, 4, 8 or {} values",
                    tensors.prefix(), of.dims[0], dim, Codebook::kMaxBooks, Codebook::kMaxDim));
  const bool wide = codes.type_name == "I16";
  if ((!wide && codes.type_name != "I8") || (!wide && bits > 8) || index.rank != 3 || index.values() == 0 ||
      index.dims[2] != of.dims[0])
    return tensors.wrong(
        codes, fmt::format("must be {} [rows, vectors of a row, {} books]", bits > 8 ? "I16" : "I8", of.dims[0]));
  return Codebook{.bits = bits, .dim = static_cast<int>(dim), .books = static_cast<int>(of.dims[0])};
}

// Indices in `bits` bits each, row after row.
void store_indices(const Codebook& book, const StoredTensor& codes, int64_t rows, int64_t count, uint8_t* out) {
  const int64_t bytes = codes.type_name == "I16" ? 2 : 1, row_bytes = (count * book.bits + 7) / 8;
  const uint8_t* from = codes.tensor.data;
  if (book.bits == 8 * bytes) {
    std::memcpy(out, from, static_cast<size_t>(rows * row_bytes));
    return;
  }
  std::memset(out, 0, static_cast<size_t>(rows * row_bytes));
  for (int64_t row = 0; row < rows; ++row, out += row_bytes)
    for (int64_t i = 0; i < count; ++i, from += bytes) {
      const uint32_t code = from[0] | (bytes == 2 ? uint32_t{from[1]} << 8 : 0);
      set_codebook_index(book, out, i, code & ((1u << book.bits) - 1));
    }
}

}  // namespace

Result<void> store_aqlm(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& codes, const Json& config) {
  StoredTensor *books = tensors.find("codebooks"), *scales = tensors.find("scales");
  if (!books || !scales)
    return Error::corrupt(
        fmt::format("{}: tensor {}{} is missing", model.path, tensors.prefix(), books ? "scales" : "codebooks"));
  MILLRACE_TRY(const Codebook book, read_shape(tensors, config, codes, *books));
  const int64_t rows = codes.tensor.dims[0], count = codes.tensor.dims[1] * book.books;
  MILLRACE_TRY(const std::vector<float> of_rows, tensors.numbers("scales", rows, 1));
  MILLRACE_TRY(const std::vector<float> entries, read_scales(model, *books));

  // No overflow: none of these takes more than twice the bytes of the file.
  const Format *f16 = find_format("f16"), *f32 = find_format("f32");
  const int64_t row_bytes = (count * book.bits + 7) / 8;
  const StoredTensor stored = codes;
  MILLRACE_TRY(uint8_t * to, replace(model, codes, "I8", nullptr, {rows, row_bytes}, 1));
  store_indices(book, stored, rows, count, to);
  MILLRACE_TRY(to, replace(model, *books, "F16", f16, {1, book.books, int64_t{1} << book.bits, book.dim}, 2));
  f16->encode(entries.data(), to, static_cast<int64_t>(entries.size()));
  MILLRACE_TRY(to, replace(model, *scales, "F32", f32, {rows}, 4));
  std::memcpy(to, of_rows.data(), of_rows.size() * sizeof(float));
  codes.name = tensors.prefix() + "weight";
  books->name = tensors.prefix() + "codebook";
  scales->name = tensors.prefix() + "codebook_scales";
  return {};
}

}  // namespace millrace
