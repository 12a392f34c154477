// Published quantized checkpoints: safetensors whose config.json has a quantization_config. Each method replaces the
// tensors of a matrix by one matrix in our formats (levels.h), under its plain name ("...q_proj.weight"). Architectures
// and kernels thus need not know the methods. ModelFiles owns the memory of these matrices.
//
//   gptq                 qweight, qzeros, scales, g_idx       GPTQ (Frantar et al., 2022), by AutoGPTQ, GPTQModel
//   awq                  qweight, qzeros, scales              AWQ (Lin et al., 2023), by AutoAWQ, layout "gemm"
//   compressed-tensors   weight_packed, weight_scale, ...     pack- and int-quantized; FP8 is read as stored
//                        ... and weight_global_scale          NVFP4, MXFP4
//   modelopt             weight, weight_scale, ..._scale_2    NVFP4 by NVIDIA's Model Optimizer; FP8 as stored
//   bitsandbytes         weight, SCB                          LLM.int8() (Dettmers et al., 2022)
//                        weight, weight.absmax, ...           NF4 and FP4 of QLoRA (Dettmers et al., 2023)
//   hqq                  W_q, scale, zero, shape, nbits, ...  HQQ (Badri and Shaji, 2023), by Transformers
//   aqlm                 codes, codebooks, scales             AQLM (Egiazarian et al., 2024)
//   quip_params          Qidxs, SU, SV, Wscale, fuse_scales   QuIP# (Tseng et al., 2024); a separate key of config.json
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Checks that the method's name and layout are supported. `path`: of config.json, for the message. Errors: unsupported.
Result<void> check_quantization(const nlohmann::ordered_json& config, const std::string& path);

// Replaces the tensors of all quantized matrices. Errors: corrupt (a missing or wrong tensor, which the message names),
// unsupported.
Result<void> unpack_quantized(ModelFiles& model, const nlohmann::ordered_json& config);

}  // namespace millrace
