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

// Each read function returns the levels of one matrix; its qweight, weight_packed or weight must exist. `order`: out,
// for GPTQ, the matrix's column index for each stored column; empty: stored in order.
Result<Levels> read_gptq(const QuantizedTensors& tensors, const nlohmann::ordered_json& config,
                         std::vector<int32_t>& order);
Result<Levels> read_awq(const QuantizedTensors& tensors, const nlohmann::ordered_json& config);
Result<Levels> read_compressed_tensors(const QuantizedTensors& tensors, const nlohmann::ordered_json& config);
Result<Levels> read_bitsandbytes_int8(const QuantizedTensors& tensors);
// Converts NF4 and FP4, which have no integer levels. Replaces `weight`; weight.absmax must exist.
Result<void> store_bitsandbytes_4bit(ModelFiles& model, const QuantizedTensors& tensors);
// Converts NVFP4 and MXFP4. `matrix`: weight_packed or weight.
Result<void> store_float4(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& matrix);
// Converts and renames the tensors codes, codebooks and scales, so that the matrix has a Codebook.
Result<void> store_aqlm(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& codes,
                        const nlohmann::ordered_json& config);
// Replaces `stored`, which is W_q, by the matrix.
Result<void> store_hqq(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& stored);
// Check and convert QuIP#. The conversion replaces Qidxs, SU and SV by a matrix with an InputChange and an
// OutputChange. `config`: all of config.json.
Result<void> check_quip_sharp(const nlohmann::ordered_json& config, const std::string& path);
Result<void> store_quip_sharp(ModelFiles& model, const QuantizedTensors& tensors, StoredTensor& indices,
                              const nlohmann::ordered_json& config);

}  // namespace millrace
