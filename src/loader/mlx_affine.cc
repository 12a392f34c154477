#include "loader/mlx_affine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/ordered_json.h"
#include "formats/block.h"
#include "formats/format.h"
#include "loader/file_text.h"
#include "loader/hf_weights.h"
#include "loader/quantized/levels.h"
#include "loader/quantized/quantized_tensors.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

struct Packing {
  int64_t bits = 4;
  int64_t group = 64;
};

Result<Packing> read_packing(const Json& object, Packing defaults) {
  auto mode = object.find("mode");
  if (mode != object.end() && *mode != "affine") {
    return Error::unsupported(fmt::format("config.json: MLX quantization mode {} is not supported; supported: affine",
                                          mode->dump(-1, ' ', true, Json::error_handler_t::replace)));
  }
  auto number = [&](const char* key, int64_t value) {
    auto found = object.find(key);
    if (found == object.end()) return value;
    return found->is_number_unsigned() && found->get<uint64_t>() <= 65536 ? found->get<int64_t>() : int64_t{-1};
  };
  Packing packing{number("bits", defaults.bits), number("group_size", defaults.group)};
  if (packing.bits != 2 && packing.bits != 3 && packing.bits != 4 && packing.bits != 8) {
    return Error::unsupported(fmt::format(
        "config.json: MLX quantization with {} bits is not supported; supported: 2, 3, 4 and 8", packing.bits));
  }
  if (packing.group < 1) return Error::corrupt("config.json: key 'quantization.group_size' must be from 1 to 65536");
  return packing;
}

// The smallest format of a scale and a minimum whose blocks are within groups; null: none.
const Format* affine_format(const Packing& packing) {
  if (packing.bits > 4 || packing.group % kLevelBlock != 0) return nullptr;
  if (packing.bits == 4 || packing.group % 64 != 0) return find_format("q4_1");
  const bool wide = packing.group % 128 == 0;
  if (packing.bits == 2) return find_format(wide ? "q2_g128" : "q2_g64");
  return find_format(wide ? "q3_g128" : "q3_g64");
}

bool is_f16(float value) { return f16_to_f32(f32_to_f16(value)) == value; }

// The packing of one module: its own entry in "quantization", or the common one.
Result<Packing> packing_of(const Json& quantization, std::string_view module) {
  MILLRACE_TRY(Packing packing, read_packing(quantization, {}));
  auto own = quantization.find(module);
  if (own == quantization.end() || !own->is_object()) return packing;
  return read_packing(*own, packing);
}

class Unpacker {
 public:
  Unpacker(ModelFiles& model, const Json& quantization) : model_(model), quantization_(quantization) {}

  Result<void> run() {
    std::vector<bool> absorbed(model_.tensors.size(), false);
    for (StoredTensor& matrix : model_.tensors) {
      constexpr std::string_view kWeight = ".weight";
      if (matrix.type_name != "U32" || matrix.tensor.rank < 2 || !matrix.name.ends_with(kWeight)) continue;
      std::string module = matrix.name.substr(0, matrix.name.size() - kWeight.size());
      auto scales = model_.tensor_index.find(module + ".scales");
      auto biases = model_.tensor_index.find(module + ".biases");
      if (scales == model_.tensor_index.end() || biases == model_.tensor_index.end()) {
        return error(matrix, "its .scales or .biases are missing");
      }
      MILLRACE_TRY(Packing packing, packing_of(quantization_, module));
      MILLRACE_TRY_VOID(unpack(matrix, model_.tensors[scales->second], model_.tensors[biases->second], packing));
      absorbed[scales->second] = absorbed[biases->second] = true;
    }
    remove_tensors(model_, absorbed);
    return {};
  }

 private:
  Error error(const StoredTensor& tensor, const std::string& what) const {
    return Error::corrupt(fmt::format("{}: tensor {} at offset {}: {}", model_.files[tensor.file]->path(),
                                      quoted_name(tensor.name), tensor.offset, what));
  }

  // One row of a scale or bias matrix, checked to be finite.
  Result<void> decode_row(const StoredTensor& source, int64_t row, std::vector<float>& out) const {
    const Format* format = source.tensor.format;
    auto groups = static_cast<int64_t>(out.size());
    format->decode(source.tensor.data + row * format->row_bytes(groups), out.data(), groups);
    for (float value : out) {
      if (!std::isfinite(value))
        return error(source, fmt::format("value in row {} is not finite (NaN or infinite)", row));
    }
    return {};
  }

  Result<void> check_parameters(const StoredTensor& matrix, const StoredTensor& part, int64_t groups) const {
    bool plain = part.tensor.format && (part.type_name == "F32" || part.type_name == "F16" || part.type_name == "BF16");
    if (!plain) return error(part, fmt::format("type {}; F32, F16 or BF16 is expected", part.type_name));
    if (part.tensor.rank != matrix.tensor.rank || part.tensor.rows() != matrix.tensor.rows() ||
        part.tensor.cols() != groups) {
      return error(part, fmt::format("{} x {} values do not fit the {} rows of {} groups of its matrix",
                                     part.tensor.rows(), part.tensor.cols(), matrix.tensor.rows(), groups));
    }
    return {};
  }

  Result<void> unpack(StoredTensor& matrix, const StoredTensor& scales, const StoredTensor& biases, Packing packing) {
    int64_t rows = matrix.tensor.values() == 0 ? 0 : matrix.tensor.rows();
    int64_t words = rows == 0 ? 0 : matrix.tensor.cols();
    int64_t cols = words * 32 / packing.bits;  // no overflow: the file contains `words` words
    int64_t groups = cols / packing.group;
    if (rows < 1 || groups < 1 || cols * packing.bits != words * 32 || cols % packing.group != 0) {
      return error(matrix, fmt::format("{} columns are not whole groups of {}", cols, packing.group));
    }
    MILLRACE_TRY_VOID(check_parameters(matrix, scales, groups));
    MILLRACE_TRY_VOID(check_parameters(matrix, biases, groups));
    std::vector<float> scale(static_cast<size_t>(groups)), bias(static_cast<size_t>(groups));
    const Format* affine = affine_format(packing);
    bool blocks = affine != nullptr;
    for (int64_t row = 0; row < rows; ++row) {
      MILLRACE_TRY_VOID(decode_row(scales, row, scale));
      MILLRACE_TRY_VOID(decode_row(biases, row, bias));
      blocks = blocks && std::ranges::all_of(scale, is_f16) && std::ranges::all_of(bias, is_f16);
    }
    const Format& format = blocks ? *affine : *find_format("f32");
    const int block_values = format.block_values;
    const int64_t bytes = rows * format.row_bytes(cols);
    MILLRACE_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(bytes, matrix.name.c_str()));
    const uint8_t* source = matrix.tensor.data;
    uint8_t* out = buffer.data();
    std::memset(out, 0, static_cast<size_t>(bytes));
    for (int64_t row = 0; row < rows; ++row) {
      MILLRACE_TRY_VOID(decode_row(scales, row, scale));
      MILLRACE_TRY_VOID(decode_row(biases, row, bias));
      for (int64_t col = 0; col < cols; ++col) {
        const uint32_t level = packed_bits(source, 1, col * packing.bits, static_cast<int>(packing.bits));
        auto group = static_cast<size_t>(col / packing.group);
        if (!blocks) {
          const float value = scale[group] * static_cast<float>(level) + bias[group];
          std::memcpy(out, &value, sizeof(value));
          out += sizeof(value);
          continue;
        }
        if (col % block_values == 0) {
          store_u16(out, f32_to_f16(scale[group]));
          store_u16(out + 2, f32_to_f16(bias[group]));
        }
        format.set_level(out, static_cast<int>(col % block_values), static_cast<int>(level));
        if ((col + 1) % block_values == 0) out += format.block_bytes;
      }
      source += words * static_cast<int64_t>(sizeof(uint32_t));
    }
    matrix.tensor.format = &format;
    matrix.tensor.dims[matrix.tensor.rank - 1] = cols;
    matrix.tensor.data = buffer.data();
    matrix.tensor.bytes = bytes;
    matrix.type_name = format.name;
    model_.buffers.push_back(std::make_shared<AlignedBuffer>(std::move(buffer)));
    return {};
  }

  ModelFiles& model_;
  const Json& quantization_;
};

}  // namespace

Result<void> unpack_mlx_affine(ModelFiles& model, const Json& config) {
  auto quantization = config.find("quantization");
  if (quantization == config.end() || !quantization->is_object()) return {};
  return Unpacker(model, *quantization).run();
}

}  // namespace millrace
