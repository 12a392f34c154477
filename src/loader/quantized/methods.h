// The methods of quantized checkpoints, one file each. quantized.cc calls the function of a matrix's method.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"
#include "loader/quantized/levels.h"
#include "loader/quantized/quantized_tensors.h"

namespace millrace {

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
