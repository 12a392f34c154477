// Checkpoints of bitsandbytes in 4 bits (Dettmers et al., 2023, QLoRA: Efficient Finetuning of Quantized LLMs): NF4 and
// FP4. Of a matrix of n values in rows, blocks of `blocksize` values run on over the ends of rows:
//
//   weight              n / 2 bytes, of any type; the value before is in the high half of a byte
//   weight.absmax       [blocks] F32, the largest magnitude of each; or U8 if these are quantized too ("nested")
//   weight.quant_map    [16] F32, the value of each code
//   weight.nested_absmax, weight.nested_quant_map [256]: absmax = map[code] * nested_absmax[of its block] + offset
//   weight.quant_state.bitsandbytes__nf4 (or __fp4)   JSON as U8: shape, blocksize, nested_blocksize, nested_offset
//
// value = quant_map[code] * absmax. It becomes the format of that name where blocks are whole blocks of 32 and the map
// is the published one; else F32.
#include <fmt/format.h>

#include <cmath>

#include "base/ordered_json.h"
#include "formats/block.h"
#include "formats/code_tables.h"
#include "formats/format.h"
#include "loader/file_text.h"
#include "loader/json_check.h"
#include "loader/quantized/methods.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxRows = int64_t{1} << 31;
constexpr float kSameMap = 1e-4f;  // maps of different types differ by more

struct QuantState {
  const StoredTensor* stored = nullptr;
  const char* type = "";
  int64_t rows = 0, cols = 0, block = 0;
  int64_t nested_block = 0;
  double nested_offset = 0;
};

// From 1 to `most`; 0: neither.
int64_t size_of(const Json& value, int64_t most) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(most)) return 0;
  return value.get<int64_t>();
}

Result<QuantState> read_state(const QuantizedTensors& tensors) {
  QuantState out{.type = "nf4"};
  out.stored = tensors.find("weight.quant_state.bitsandbytes__nf4");
  if (!out.stored) {
    out.type = "fp4";
    out.stored = tensors.find("weight.quant_state.bitsandbytes__fp4");
  }
  if (!out.stored)
    return Error::unsupported(
        fmt::format("tensor {}weight: bitsandbytes in 4 bits without a quant_state of NF4 or FP4", tensors.prefix()));
  if (out.stored->type_name != "U8") return tensors.wrong(*out.stored, "must be U8");
  const std::string_view text(reinterpret_cast<const char*>(out.stored->tensor.data),
                              static_cast<size_t>(out.stored->tensor.bytes));
  MILLRACE_TRY(const Json state, parse_json_object(text, out.stored->name, {.bytes = 1 << 16, .depth = 8}));
  const auto value = [&](const char* key) {
    const auto found = state.find(key);
    return found == state.end() ? Json() : *found;
  };
  const Json shape = value("shape");
  if (shape.is_array() && shape.size() == 2) {
    out.rows = size_of(shape[0], kMaxRows);
    out.cols = size_of(shape[1], kMaxRows);
  }
  out.block = size_of(value("blocksize"), kMaxRows);
  if (out.rows == 0 || out.cols == 0 || out.block == 0)
    return tensors.wrong(*out.stored, "its 'shape' and 'blocksize' must be two sizes and one, each from 1 to 2^31");
  if (!state.contains("nested_blocksize")) return out;
  out.nested_block = size_of(value("nested_blocksize"), kMaxRows);
  const Json offset = value("nested_offset");
  if (out.nested_block == 0 || !offset.is_number() || !std::isfinite(offset.get<double>()))
    return tensors.wrong(*out.stored, "its 'nested_blocksize' and 'nested_offset' must be a size and a number");
  out.nested_offset = offset.get<double>();
  return out;
}

// Of each block.
Result<std::vector<float>> read_absmax(const QuantizedTensors& tensors, const QuantState& state, int64_t blocks) {
  if (state.nested_block == 0) return tensors.numbers("weight.absmax", blocks, 1);
  const StoredTensor& codes = *tensors.find("weight.absmax");
  if (codes.type_name != "U8" || codes.tensor.values() != blocks)
    return tensors.wrong(
        codes, fmt::format("is {} with {} values; must be U8 with {}", codes.type_name, codes.tensor.values(), blocks));
  const int64_t nested = (blocks - 1) / state.nested_block + 1;
  MILLRACE_TRY(const std::vector<float> map, tensors.numbers("weight.nested_quant_map", 256, 1));
  MILLRACE_TRY(const std::vector<float> absmax, tensors.numbers("weight.nested_absmax", nested, 1));
  std::vector<float> out(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < blocks; ++i) {
    const float scaled = map[codes.tensor.data[i]] * absmax[static_cast<size_t>(i / state.nested_block)];
    const float sum = scaled + static_cast<float>(state.nested_offset);
    if (!std::isfinite(sum)) return tensors.wrong(codes, fmt::format("absmax {} is not finite", i));
    out[static_cast<size_t>(i)] = sum;
  }
  return out;
}

int code_at(const uint8_t* bytes, int64_t i) { return i % 2 == 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15; }

// Whether the format of that name holds the matrix.
bool has_format(const QuantState& state, const std::vector<float>& map, const std::vector<float>& absmax) {
  const float(&published)[16] = state.type == std::string_view("nf4") ? kNf4Values : kFp4Values;
  for (size_t i = 0; i < 16; ++i)
    if (std::fabs(map[i] - published[i]) > kSameMap) return false;
  for (float scale : absmax)
    if (!fits_f16(scale)) return false;
  return state.cols % kLevelBlock == 0 && state.block % kLevelBlock == 0;
}

void store_blocks(const QuantState& state, const uint8_t* bytes, const std::vector<float>& absmax, const Format& format,
                  uint8_t* out) {
  for (int64_t first = 0; first < state.rows * state.cols; first += kLevelBlock, out += format.block_bytes) {
    store_u16(out, f32_to_f16(absmax[static_cast<size_t>(first / state.block)]));
    for (int i = 0; i < kLevelBlock; ++i) format.set_level(out, i, code_at(bytes, first + i));
  }
}

void store_values(const QuantState& state, const uint8_t* bytes, const std::vector<float>& map,
                  const std::vector<float>& absmax, float* out) {
  for (int64_t i = 0; i < state.rows * state.cols; ++i)
    out[i] = map[static_cast<size_t>(code_at(bytes, i))] * absmax[static_cast<size_t>(i / state.block)];
}

}  // namespace

Result<void> store_bitsandbytes_4bit(ModelFiles& model, const QuantizedTensors& tensors) {
  MILLRACE_TRY(const QuantState state, read_state(tensors));
  StoredTensor& matrix = *tensors.find("weight");
  // No overflow: both are at most 2^31.
  if (matrix.tensor.bytes != (state.rows * state.cols - 1) / 2 + 1)
    return tensors.wrong(matrix, fmt::format("has {} bytes, which do not fit {} x {} values of 4 bits",
                                             matrix.tensor.bytes, state.rows, state.cols));
  const int64_t blocks = (state.rows * state.cols - 1) / state.block + 1;
  MILLRACE_TRY(const std::vector<float> map, tensors.numbers("weight.quant_map", 16, 1));
  MILLRACE_TRY(const std::vector<float> absmax, read_absmax(tensors, state, blocks));
  const uint8_t* const bytes = matrix.tensor.data;
  const bool held = has_format(state, map, absmax);
  const Format& format = *find_format(held ? state.type : "f32");
  MILLRACE_TRY(uint8_t * memory, replace_matrix(model, matrix, state.rows, state.cols, format));
  if (held)
    store_blocks(state, bytes, absmax, format, memory);
  else
    store_values(state, bytes, map, absmax, reinterpret_cast<float*>(memory));
  return {};
}

}  // namespace millrace
