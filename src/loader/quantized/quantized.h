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

namespace millrace {

// Checks that the method can be read, by its name and layout. `path` of config.json is for the message. Errors:
// unsupported.
Result<void> check_quantization(const nlohmann::ordered_json& config, const std::string& path);

// Replaces the tensors of all quantized matrices. Errors: corrupt (a missing or wrong tensor, named), unsupported.
Result<void> unpack_quantized(ModelFiles& model, const nlohmann::ordered_json& config);

}  // namespace millrace
