// QuIP# checkpoints (Tseng et al., 2024, QuIP#: Even Better LLM Quantization with Hadamard Incoherence and Lattice
// Codebooks), as its library writes Llama and Mistral. config.json has `quip_params`. Of a [rows, cols] matrix:
//
//   Qidxs          I64: codes of eight weights; with 3 and 4 bits, those of what is left follow them in each row
//   SU, SV         [cols], [rows]; Wscale, one number
//   fuse_scales    [parts], of queries, keys and values, or of up and gate, which are one matrix
//   codebook_id    7: E8P12, 18: E8P12RVQ3B, 17: E8P12RVQ4B
//
//   y = Wscale SV (H W (H^T (SU x)))      H: the Hadamard matrix of the size, tensor/hadamard.h
//
// With 2 bits, W keeps its codes, as the format e8p. A residual is divided by 2.04 or 3.45, or by resid_scale_override,
// which e8p_3 and e8p_4 are not made for: such a matrix becomes F16, as one whose columns are no multiple of 256.
//
// A word of 64 bits holds four codes, of rows 2 p and 2 p + 1 and vectors 2 q and 2 q + 1; code i = row % 2 + 2 (vector
// % 2) has its pattern of magnitudes in byte i, and bit j of its signs in bit 32 + 4 j + i. Words are stored for 16
// rows and 8 vectors at a time: 8 pairs of rows, of each 4 pairs of vectors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/ordered_json.h"
#include "formats/e8p_block.h"
#include "formats/format.h"
#include "loader/file_text.h"
#include "loader/quantized/methods.h"
#include "tensor/hadamard.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

struct Kind {
  std::string_view name;
  int64_t id, version;
  int64_t second_bits;    // of the code of what is left of eight weights
  double second_divisor;  // of its values
};
constexpr Kind kKinds[] = {{"E8P12", 7, 1, 0, 1}, {"E8P12RVQ3B", 18, 0, 8, 2.04}, {"E8P12RVQ4B", 17, 1, 16, 3.45}};

const Json& parameters_of(const Json& config) { return config.at("quip_params"); }

int64_t integer_or(const Json& object, const char* key, int64_t fallback) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : fallback;
}

const Kind* find_kind(const Json& parameters) {
  const auto found = parameters.find("codebook");
  if (found == parameters.end() || !found->is_string()) return nullptr;
  const auto* const kind = std::ranges::find(kKinds, found->get<std::string>(), &Kind::name);
  return kind == std::end(kKinds) ? nullptr : kind;
}

// The 256 points that stand for what 3 bits leave, in halves: those of squared norm up to 2 in lexicographic order,
// whole ones before halves, then 2 and -2 in one place.
std::vector<std::array<int8_t, 8>> second_points() {
  std::vector<std::array<int8_t, 8>> out;
  for (const int from : {-2, -1}) {  // steps of 2: whole numbers, or odd halves
    std::array<int8_t, 8> point;
    point.fill(static_cast<int8_t>(from));
    const int most = from == -2 ? 2 : 1;
    for (bool more = true; more;) {
      int norm = 0, sum = 0;
      for (int8_t x : point) norm += x * x, sum += x;
      if (norm <= 8 && sum % 4 == 0) out.push_back(point);
      more = false;
      for (size_t i = 8; i-- > 0 && !more;) {
        more = point[i] < most;
        point[i] = static_cast<int8_t>(more ? point[i] + 2 : from);
      }
    }
  }
  for (const int sign : {4, -4})
    for (size_t i = 0; i < 8 && out.size() < 256; ++i) {
      std::array<int8_t, 8> point = {};
      point[i] = static_cast<int8_t>(sign);
      out.push_back(point);
    }
  return out;
}

class Codes {
 public:
  Codes(const StoredTensor& stored, int64_t cols) : stored_(stored), vectors_(cols / 8) {}

  // Of eight weights; `first`: words of a row before these codes.
  uint16_t at(int64_t row, int64_t vector, int64_t first) const {
    const int64_t place = ((row / 16 * (vectors_ / 8) + vector / 8) * 8 + row % 16 / 2) * 4 + vector % 8 / 2;
    const uint64_t word = word_at(place / words(), first + place % words());
    const auto lane = static_cast<int>(row % 2 + 2 * (vector % 2));
    uint32_t code = static_cast<uint32_t>(word >> (8 * lane) & 255) << 8;
    for (int j = 0; j < 8; ++j) code |= static_cast<uint32_t>(word >> (32 + 4 * j + lane) & 1) << j;
    return static_cast<uint16_t>(code);
  }
  // One of the 256 points.
  uint8_t point_at(int64_t row, int64_t vector) const {
    return static_cast<uint8_t>(word_at(row, words() + vector / 8) >> (8 * (vector % 8)));
  }
  int64_t words() const { return vectors_ / 4; }  // of a row, without those of what is left

 private:
  uint64_t word_at(int64_t row, int64_t column) const {
    uint64_t word;
    std::memcpy(&word, stored_.tensor.data + 8 * (row * stored_.tensor.cols() + column), sizeof(word));
    return word;
  }

  const StoredTensor& stored_;
  int64_t vectors_;
};

void store_e8p_rows(const Codes& codes, int64_t rows, int64_t cols, uint8_t* out) {
  std::array<uint16_t, kE8pPoints> block;
  const uint16_t one = f32_to_f16(1.0f);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t vector = 0; vector < cols / 8; vector += kE8pPoints, out += kE8pBlockBytes) {
      for (int64_t p = 0; p < kE8pPoints; ++p) block[static_cast<size_t>(p)] = codes.at(row, vector + p, 0);
      store_e8p(one, block.data(), out);
    }
}

void store_sums(const Codes& codes, const Kind& kind, double divisor, int64_t rows, int64_t cols, uint8_t* out) {
  static const std::vector<std::array<int8_t, 8>> points = second_points();
  const Format& f16 = *find_format("f16");
  std::vector<float> values(static_cast<size_t>(cols));
  for (int64_t row = 0; row < rows; ++row, out += f16.row_bytes(cols)) {
    for (int64_t vector = 0; vector < cols / 8; ++vector) {
      std::array<int8_t, 8> first, second = {};
      e8p_values(codes.at(row, vector, 0), first.data());
      double unit = 0;
      if (kind.second_bits == 8) {
        second = points[codes.point_at(row, vector)];
        unit = 0.5 / divisor;
      } else if (kind.second_bits == 16) {
        e8p_values(codes.at(row, vector, codes.words()), second.data());
        unit = 0.25 / divisor;
      }
      for (size_t i = 0; i < 8; ++i)
        values[static_cast<size_t>(vector) * 8 + i] = static_cast<float>(0.25 * first[i] + unit * second[i]);
    }
    f16.encode(values.data(), out, cols);
  }
}

// Rows of the matrices that are fused in one.
Result<std::vector<int64_t>> fused_rows(const QuantizedTensors& tensors, const StoredTensor& scales, int64_t rows,
                                        const Json& config) {
  const int64_t parts = scales.tensor.values();
  if (parts == 2 && rows % 2 == 0) return std::vector<int64_t>(2, rows / 2);
  const int64_t heads = std::max<int64_t>(1, integer_or(config, "num_attention_heads", 1));
  const int64_t head = integer_or(config, "head_dim", integer_or(config, "hidden_size", 0) / heads);
  const int64_t keys = integer_or(config, "num_key_value_heads", heads) * head;
  if (parts == 3 && heads * head + 2 * keys == rows && keys > 0) return std::vector<int64_t>{heads * head, keys, keys};
  return tensors.wrong(scales, fmt::format("has {} values, which fit no parts of {} rows", parts, rows));
}

Result<std::vector<float>> output_scales(const QuantizedTensors& tensors, int64_t rows, const Json& config) {
  MILLRACE_TRY(std::vector<float> scales, tensors.numbers("SV", rows, 1));
  MILLRACE_TRY(const std::vector<float> all, tensors.numbers("Wscale", 1, 1));
  for (float& scale : scales) scale *= all.front();
  const StoredTensor* const fused = tensors.find("fuse_scales");
  if (!fused) return scales;
  MILLRACE_TRY(const std::vector<int64_t> parts, fused_rows(tensors, *fused, rows, config));
  MILLRACE_TRY(const std::vector<float> of_parts, tensors.numbers("fuse_scales", std::ssize(parts), 1));
  for (size_t part = 0, row = 0; part < parts.size(); ++part)
    for (int64_t i = 0; i < parts[part]; ++i) scales[row++] *= of_parts[part];
  return scales;
}

Result<std::vector<float>> input_scales(const QuantizedTensors& tensors, int64_t cols) {
  MILLRACE_TRY(std::vector<float> scales, tensors.numbers("SU", cols, 1));
  if (!tensors.find("scaleWH")) return scales;
  MILLRACE_TRY(const std::vector<float> divisors, tensors.numbers("scaleWH", cols, 1));
  for (size_t c = 0; c < scales.size(); ++c) scales[c] /= divisors[c];
  return scales;
}

Result<void> add_hadamard(ModelFiles& model, const std::string& name, size_t file, int64_t n) {
  const int64_t outer = outer_hadamard_order(n);
  if (outer == 0)
    return Error::unsupported(fmt::format("tensor {}: there is no Hadamard matrix for {} values", name, n));
  std::vector<float> sizes = {static_cast<float>(n / outer)};
  if (outer > 1) sizes.push_back(static_cast<float>(outer));
  return add_part(model, name, file, sizes);
}

}  // namespace

Result<void> check_quip_sharp(const Json& config, const std::string& path) {
  const Json& parameters = parameters_of(config);
  const auto refuse = [&](const std::string& what) {
    return Error::unsupported(fmt::format("{}: key 'quip_params': {}", path, what));
  };
  if (!parameters.is_object()) return refuse("must be an object");
  const Kind* const kind = find_kind(parameters);
  if (!kind) return refuse("the codebook must be E8P12, E8P12RVQ3B or E8P12RVQ4B");
  if (integer_or(parameters, "codebook_version", 0) != kind->version)
    return refuse(fmt::format("codebook_version must be {}; older files have another layout", kind->version));
  if (integer_or(parameters, "lora_rank", 0) != 0) return refuse("low-rank pairs (lora_rank) cannot be read");
  return {};
}

Result<void> store_quip_sharp(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& indices,
                              const Json& config) {
  const Kind& kind = *find_kind(parameters_of(config));
  const StoredTensor *const su = tensors.find("SU"), *const sv = tensors.find("SV");
  if (!su || !sv)
    return Error::corrupt(
        fmt::format("{}: tensor {} is missing", model.path, quoted_name(tensors.prefix() + (su ? "SV" : "SU"))));
  const int64_t cols = su->tensor.values(), rows = sv->tensor.values();
  if (cols % 64 != 0 || rows % 16 != 0)
    return tensors.wrong(indices, fmt::format("{} x {} weights are not whole blocks of 16 x 64", rows, cols));
  MILLRACE_TRY_VOID(tensors.matrix("Qidxs", "I64", rows, cols / 32 + cols * kind.second_bits / 512));
  MILLRACE_TRY(const std::vector<int32_t> id, tensors.integers("codebook_id", 1, 255));
  if (id.front() != kind.id)
    return tensors.wrong(*tensors.find("codebook_id"), fmt::format("is {}; {} has {}", id.front(), kind.name, kind.id));
  MILLRACE_TRY(const std::vector<float> inputs, input_scales(tensors, cols));
  MILLRACE_TRY(const std::vector<float> outputs, output_scales(tensors, rows, config));

  const auto given = parameters_of(config).find("resid_scale_override");
  const double divisor = given != parameters_of(config).end() && given->is_number() ? given->get<double>() : -1;
  const bool keeps_codes = kind.second_bits == 0 && cols % kE8pBlockValues == 0;
  const StoredTensor stored = indices;  // its bytes are those of the file
  MILLRACE_TRY(uint8_t* const out,
               replace_matrix(model, indices, rows, cols, *find_format(keeps_codes ? "e8p" : "f16")));
  if (keeps_codes)
    store_e8p_rows(Codes(stored, cols), rows, cols, out);
  else
    store_sums(Codes(stored, cols), kind, divisor > 0 ? divisor : kind.second_divisor, rows, cols, out);
  const std::string prefix = tensors.prefix();
  const size_t file = indices.file;
  indices.name = prefix + "weight";
  MILLRACE_TRY_VOID(add_part(model, prefix + "input_scale", file, inputs));
  MILLRACE_TRY_VOID(add_hadamard(model, prefix + "input_hadamard", file, cols));
  MILLRACE_TRY_VOID(add_part(model, prefix + "output_scale", file, outputs));
  return add_hadamard(model, prefix + "output_hadamard", file, rows);
}

}  // namespace millrace
