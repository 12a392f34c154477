#include "evaluate/npu_calibration.h"

#include "evaluate/scorer.h"
#include "models/model_runner.h"
#include "models/npu/calibrate.h"

namespace millrace {

Result<NpuScales> calibrate_npu(const LanguageModel& model, std::span<const TokenId> tokens, int64_t context,
                                int threads) {
  MILLRACE_TRY_VOID(check_text_length(std::ssize(tokens), context));
  const LanguageModel::Parts& parts = model.parts();
  NpuCalibration calibration(*parts.model);
  if (calibration.scales().maxima.empty())
    return Error::unsupported("NPU scales: this model has no matrices that a graph of the NPU computes");
  constexpr int64_t kBlockTokens = 16;
  const int64_t blocks = (context + kBlockTokens - 1) / kBlockTokens;
  MILLRACE_TRY(const auto runner,
               ModelRunner::create_charged(*parts.model, parts.kernels,
                                           {.threads = parts.threads->get(threads),
                                            .layout = {find_format("f32"), kBlockTokens, parts.model->kv_layers()},
                                            .blocks = blocks,
                                            .places = {},
                                            .limits = {context, 1, blocks * kBlockTokens}},
                                           parts.accounts, "lower the context, or raise the budget"));
  runner->hooks().add(calibration);
  std::vector<BlockId> own;
  for (int64_t i = 0; i < blocks; ++i) {
    MILLRACE_TRY(const BlockId block, runner->kv().allocate());
    own.push_back(block);
  }
  for (size_t first = 0; first + static_cast<size_t>(context) <= tokens.size(); first += static_cast<size_t>(context)) {
    runner->start();
    runner->begin(own, 0);
    // Every token is an output, so that all run in the last layer, too.
    for (int64_t i = 0; i < context; ++i) runner->add(tokens[first + static_cast<size_t>(i)], i, true);
    runner->forward_hidden();
    MILLRACE_TRY_VOID(runner->take_failure());
  }
  return calibration.scales();
}

}  // namespace millrace
