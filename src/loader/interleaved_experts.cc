#include "loader/interleaved_experts.h"

#include <fmt/format.h>

#include <cstring>

#include "formats/format.h"
#include "loader/hf_weights.h"

namespace millrace {
namespace {

constexpr int64_t kMxfp4Block = 32, kMxfp4Codes = 16;
constexpr uint8_t kMxfp4NanScale = 255;
constexpr std::string_view kExperts = "mlp.experts.";

// Outputs first, first + step, ... of a stored matrix, under a name of their own.
struct ExpertPart {
  const char* name;
  int64_t first, step;
};

class ExpertUnpacker {
 public:
  explicit ExpertUnpacker(ModelFiles& model) : model_(model), absorbed_(model.tensors.size(), false) {}

  Result<void> run() {
    for (size_t i = 0, count = absorbed_.size(); i < count; ++i) {
      const std::string name = model_.tensors[i].name;
      const size_t at = name.rfind(kExperts);
      if (at == std::string::npos) continue;
      const std::string prefix = name.substr(0, at + kExperts.size()), stored = name.substr(prefix.size());
      for (const auto& [whole, parts] : {std::pair{"gate_up_proj", kGateUp}, {"down_proj", kDown}})
        for (const ExpertPart& part : parts)
          if (part.name) MILLRACE_TRY_VOID(unpack(i, prefix, stored, whole, part));
    }
    for (const StoredTensor& part : parts_)
      if (model_.find(part.name))
        return Error::corrupt(
            fmt::format("{}: tensor {} is stored twice, alone and in a stack of experts", model_.path, part.name));
    remove_tensors(model_, absorbed_);
    for (StoredTensor& part : parts_) {
      model_.tensor_index.emplace(part.name, model_.tensors.size());
      model_.tensors.push_back(std::move(part));
    }
    return {};
  }

 private:
  using Parts = std::array<ExpertPart, 2>;
  static constexpr Parts kGateUp = {{{"gate_proj", 0, 2}, {"up_proj", 1, 2}}};
  static constexpr Parts kDown = {{{"down_proj", 0, 1}, {nullptr, 0, 1}}};

  Result<void> unpack(size_t index, const std::string& prefix, std::string_view stored, std::string_view whole,
                      const ExpertPart& part) {
    if (!stored.starts_with(whole)) return {};
    const std::string_view kind = stored.substr(whole.size());
    if (kind == "_blocks") return unpack_blocks(index, prefix, std::string(whole), part);
    if (kind == "_bias") return unpack_plain(index, prefix, part, true);
    return kind.empty() ? unpack_plain(index, prefix, part, false) : Result<void>();
  }

  Error wrong_shape(const StoredTensor& stored, const char* needed) const {
    return Error::corrupt(fmt::format("{}: tensor {} at offset {} has rank {}; its shape must be {}", model_.path,
                                      stored.name, stored.offset, stored.tensor.rank, needed));
  }

  // The stored outputs must come in turns of `part.step`.
  Result<int64_t> outputs_of(const StoredTensor& stored, int64_t all, const ExpertPart& part) const {
    if (all % part.step == 0) return all / part.step;
    return Error::corrupt(fmt::format("{}: tensor {} has {} outputs, must have an even number: gate and up in turns",
                                      model_.path, stored.name, all));
  }

  void add(const StoredTensor& from, const std::string& name, AlignedBuffer bytes, const Format& format, int64_t rows,
           int64_t cols) {
    StoredTensor out = from;
    out.name = name;
    out.tensor = {&format, 2, {rows, cols, 1, 1}, bytes.data(), bytes.bytes()};
    model_.buffers.push_back(std::make_shared<const AlignedBuffer>(std::move(bytes)));
    parts_.push_back(std::move(out));
  }

  // Floats: a matrix [experts, inputs, outputs], or a bias [experts, outputs].
  Result<void> unpack_plain(size_t index, const std::string& prefix, const ExpertPart& part, bool bias) {
    const StoredTensor stored = model_.tensors[index];
    const Format* format = stored.tensor.format;
    if (!format || format->block_values > 1 || !stored.scales.values.empty())
      return Error::unsupported(
          fmt::format("{}: tensor {} has type {}: the rows of its experts cannot be separated; known: F32, F16, BF16, "
                      "and MXFP4 as _blocks and _scales",
                      model_.path, stored.name, stored.type_name));
    if (stored.tensor.rank != (bias ? 2 : 3))
      return wrong_shape(stored, bias ? "[experts, outputs]" : "[experts, inputs, outputs]");
    const int64_t experts = stored.tensor.dims[0], inputs = bias ? 1 : stored.tensor.dims[1];
    const int64_t all = stored.tensor.dims[bias ? 1 : 2];
    MILLRACE_TRY(const int64_t outputs, outputs_of(stored, all, part));
    const int64_t value = format->block_bytes;
    MILLRACE_TRY(AlignedBuffer bytes, AlignedBuffer::allocate(experts * outputs * inputs * value, "unpacked experts"));
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t o = 0; o < outputs; ++o)
        for (int64_t i = 0; i < inputs; ++i)
          std::memcpy(bytes.data() + ((e * outputs + o) * inputs + i) * value,
                      stored.tensor.data + ((e * inputs + i) * all + part.first + o * part.step) * value,
                      static_cast<size_t>(value));
    const std::string name = fmt::format("{}{}.{}", prefix, part.name, bias ? "bias" : "weight");
    add(stored, name, std::move(bytes), *format, bias ? experts : experts * outputs, bias ? outputs : inputs);
    absorbed_[index] = true;
    return {};
  }

  Result<void> unpack_blocks(size_t index, const std::string& prefix, const std::string& whole,
                             const ExpertPart& part) {
    const StoredTensor stored = model_.tensors[index];
    const auto found = model_.tensor_index.find(prefix + whole + "_scales");
    if (found == model_.tensor_index.end())
      return Error::corrupt(fmt::format("{}: tensor {}{}_scales is missing", model_.path, prefix, whole));
    const StoredTensor& scales = model_.tensors[found->second];
    const auto& dims = stored.tensor.dims;
    if (stored.tensor.rank != 4 || dims[3] != kMxfp4Codes || stored.type_name != "U8")
      return wrong_shape(stored, "[experts, outputs, inputs / 32, 16] of type U8");
    if (scales.tensor.rank != 3 || scales.type_name != "U8" || scales.tensor.dims[0] != dims[0] ||
        scales.tensor.dims[1] != dims[1] || scales.tensor.dims[2] != dims[2])
      return wrong_shape(scales, "that of its blocks without the last dimension, of type U8");
    const Format& mxfp4 = *find_format("mxfp4");
    const int64_t experts = dims[0], all = dims[1], blocks = dims[2];
    MILLRACE_TRY(const int64_t outputs, outputs_of(stored, all, part));
    MILLRACE_TRY(AlignedBuffer bytes,
                 AlignedBuffer::allocate(experts * outputs * blocks * mxfp4.block_bytes, "unpacked experts"));
    uint8_t* out = bytes.data();
    for (int64_t row = 0; row < experts * outputs; ++row) {
      const int64_t from = row / outputs * all + part.first + row % outputs * part.step;
      for (int64_t b = from * blocks; b < (from + 1) * blocks; ++b, out += mxfp4.block_bytes) {
        if (scales.tensor.data[b] == kMxfp4NanScale)
          return Error::corrupt(fmt::format("{}: tensor {}: scale {} is NaN", model_.path, scales.name, b));
        out[0] = scales.tensor.data[b];
        const uint8_t* codes = stored.tensor.data + b * kMxfp4Codes;
        for (int j = 0; j < kMxfp4Block; ++j) mxfp4.set_level(out, j, codes[j / 2] >> (j % 2 * 4) & 15);
      }
    }
    add(stored, fmt::format("{}{}.weight", prefix, part.name), std::move(bytes), mxfp4, experts * outputs,
        blocks * kMxfp4Block);
    parts_.back().type_name = "MXFP4";
    absorbed_[index] = absorbed_[found->second] = true;
    return {};
  }

  ModelFiles& model_;
  std::vector<bool> absorbed_;
  std::vector<StoredTensor> parts_;
};

}  // namespace

bool has_interleaved_experts(std::string_view architecture) {
  return architecture == "GptOssForCausalLM" || architecture == "gpt_oss";
}

Result<void> unpack_interleaved_experts(ModelFiles& model) {
  return has_interleaved_experts(model.architecture) ? ExpertUnpacker(model).run() : Result<void>();
}

}  // namespace millrace
