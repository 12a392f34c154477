// Published quantized checkpoints: safetensors whose config.json has a quantization_config. Each method replaces its
// tensors by matrices under their plain names ("...q_proj.weight") in our formats (levels.h), so that architectures and
// kernels do not know them. Memory for these is owned by ModelFiles.
//
//   gptq                 qweight, qzeros, scales, g_idx       GPTQ (Frantar et al., 2022), by AutoGPTQ, GPTQModel
//   awq                  qweight, qzeros, scales              AWQ (Lin et al., 2023), by AutoAWQ, layout "gemm"
//   compressed-tensors   weight_packed, weight_scale, ...     pack- and int-quantized; FP8 is read as stored
//                        the same, weight_global_scale        NVFP4, MXFP4
//   modelopt             weight, weight_scale, ..._scale_2    NVFP4 by NVIDIA's Model Optimizer; FP8 as stored
//   bitsandbytes         weight, SCB                          LLM.int8() (Dettmers et al., 2022)
//                        weight, weight.absmax, ...           NF4 and FP4 of QLoRA (Dettmers et al., 2023)
//   hqq                  W_q, scale, zero, shape, nbits, ...  HQQ (Badri and Shaji, 2023), by Transformers
//   aqlm                 codes, codebooks, scales             AQLM (Egiazarian et al., 2024)
//   quip_params          Qidxs, SU, SV, Wscale, fuse_scales   QuIP# (Tseng et al., 2024); a key of its own
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "loader/model_files.h"
#include "loader/quantized/levels.h"

namespace millrace {

// Checks that the method can be read, by its name and layout. `path` of config.json is for the message. Errors:
// unsupported.
Result<void> check_quantization(const nlohmann::ordered_json& config, const std::string& path);

// Replaces the tensors of all quantized matrices. Errors: corrupt (a missing or wrong tensor, named), unsupported.
Result<void> unpack_quantized(ModelFiles& model, const nlohmann::ordered_json& config);

// --- For the methods ---

// The tensors of one quantized matrix: `prefix` ("model.layers.0.self_attn.q_proj.") and a name.
class QuantizedTensors {
 public:
  QuantizedTensors(ModelFiles& model, std::string prefix) : model_(model), prefix_(std::move(prefix)) {}

  const std::string& prefix() const { return prefix_; }
  StoredTensor* find(std::string_view name) const;  // null if absent
  // A [rows, cols] tensor; `rows` or `cols` -1: any, at least 1. Errors: corrupt (missing, another type or shape).
  Result<const StoredTensor*> matrix(std::string_view name, std::string_view type, int64_t rows, int64_t cols) const;
  // [rows, cols] numbers in F32, F16 or BF16; a column may be stored as [rows]. Errors: corrupt (also NaN, infinity).
  Result<std::vector<float>> numbers(std::string_view name, int64_t rows, int64_t cols) const;
  // [n] integers in I32 or I64, each from 0 to `most`.
  Result<std::vector<int32_t>> integers(std::string_view name, int64_t n, int64_t most) const;
  Error wrong(const StoredTensor& stored, const std::string& what) const;

 private:
  ModelFiles& model_;
  std::string prefix_;
};

// Integers of `bits` in little-endian words of 32, the first in the lowest bits; they may cross words.
uint32_t packed_bits(const uint8_t* words, int64_t stride_words, int64_t bit, int bits);

// Adds a weight part (models/weight_parts_loader.h). References to the model's tensors are invalid after it.
Result<void> add_part(ModelFiles& model, std::string name, size_t file, const std::vector<float>& values);

// Each sets the levels of one matrix, whose qweight, weight_packed or weight exists. `order` (GPTQ): columns of the
// matrix in the order in which they are stored; empty: as they are.
Result<Levels> read_gptq(const QuantizedTensors& tensors, const nlohmann::ordered_json& config,
                         std::vector<int32_t>& order);
Result<Levels> read_awq(const QuantizedTensors& tensors, const nlohmann::ordered_json& config);
Result<Levels> read_compressed_tensors(const QuantizedTensors& tensors, const nlohmann::ordered_json& config);
Result<Levels> read_bitsandbytes_int8(const QuantizedTensors& tensors);
// NF4 and FP4 are no levels: replaces `weight`, whose weight.absmax exists.
Result<void> store_bitsandbytes_4bit(ModelFiles& model, const QuantizedTensors& tensors);
// NVFP4 and MXFP4; `matrix` is weight_packed or weight.
Result<void> store_float4(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& matrix);
// Codebooks: replaces and renames the three tensors.
Result<void> store_aqlm(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& codes,
                        const nlohmann::ordered_json& config);
// Stores the matrix in `stored`, which was W_q.
Result<void> store_hqq(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& stored);
// QuIP#: a matrix and changes of its input and output, in place of Qidxs, SU and SV. `config` is all of config.json.
Result<void> check_quip_sharp(const nlohmann::ordered_json& config, const std::string& path);
Result<void> store_quip_sharp(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& indices,
                              const nlohmann::ordered_json& config);

}  // namespace millrace
