// The factories of quantizers/, pruners/, parts/ and factorizers/; each is defined in the file of its pass.
#pragma once

#include "compress/pass.h"

namespace millrace {

Result<std::unique_ptr<Pass>> make_gptq_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_squeezellm_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_rtn_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_awq_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_obq_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_owq_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_spqr_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_quantease_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_quip_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_quip_sharp_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_lut_gemm_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_llm_mq_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_finequant_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_wanda_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_magnitude_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_sparsegpt_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_obs_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_ria_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_owl_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_dsnot_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_pruner_zero_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_fast_pruning_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_isc_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_shortgpt_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_relufy_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_semsa_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_expert_sparsity_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_ziplm_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_slicegpt_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_lqer_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_outliers_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_rotate_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_svd_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_asvd_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_svd_llm_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_lord_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_lplr_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_losparse_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_tensorgpt_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_dsformer_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_round_inputs_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_smoothquant_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_llm_int8_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_zeroquant_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_zeroquant_lorc_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_zeroquant_fp_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_flexgen_int4_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_outlier_suppression_plus_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_rptq_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_atom_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_llm_fp4_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_olive_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_billm_pass(const OptionValues& options);
Result<std::unique_ptr<Pass>> make_qllm_pass(const OptionValues& options);

}  // namespace millrace
