#include "models/npu/calibrate.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "models/model_runner.h"
#include "models/npu/matrices.h"

namespace millrace {
namespace {

constexpr int64_t kSampledStreams = 8, kSampledTokens = 32;
constexpr int64_t kSampleBlock = 16;

// A token of the distribution of these logits: the largest of logit + Gumbel noise.
TokenId sample_token(const float* logits, int64_t vocab, uint64_t stream, int64_t step) {
  TokenId best = 0;
  double most = -INFINITY;
  for (int64_t i = 0; i < vocab; ++i) {
    const double uniform = philox_uniform(static_cast<uint64_t>(step) + 1, stream, static_cast<uint64_t>(i));
    const double value = logits[i] - std::log(-std::log(uniform + 1e-300));
    if (value <= most) continue;
    most = value;
    best = static_cast<TokenId>(i);
  }
  return best;
}

}  // namespace

NpuCalibration::NpuCalibration(const Model& model) {
  for (const auto& [input, cols] : NpuMatrices::input_columns(NpuMatrices::eligible(model)))
    scales_.maxima[input].assign(static_cast<size_t>(cols), 0);
}

bool NpuCalibration::taps(const LinearId& id) const {
  NpuInput input;
  if (id.kind == LinearKind::k || id.kind == LinearKind::v || id.kind == LinearKind::gate) return false;
  return npu_input_of(id, input) && scales_.maxima.contains(input);
}

void NpuCalibration::input(const LinearInput& input) {
  NpuInput key;
  npu_input_of(input.id, key);
  std::vector<float>& maxima = scales_.maxima.at(key);
  if (input.weight.cols != std::ssize(maxima)) return;  // not the model's own matrix
  for (int64_t t = 0; t < input.tokens; ++t) {
    const float* const row = input.x + t * input.weight.cols;
    for (size_t c = 0; c < maxima.size(); ++c) maxima[c] = std::max(maxima[c], std::fabs(row[c]));
  }
}

Result<NpuScales> sample_npu_scales(const Model& model, const KernelTable& kernels,
                                    std::shared_ptr<ThreadPool> threads) {
  const ArchSpec& spec = model.spec();
  if (spec.encoder)
    return Error::unsupported("kernel npu: an encoder samples no tokens to calibrate itself; omit the switch");
  const int64_t tokens = std::min(kSampledTokens, model.context());
  const int64_t each = (tokens + kSampleBlock - 1) / kSampleBlock;
  MILLRACE_TRY(const auto runner,
               ModelRunner::create(model, kernels,
                                   {.threads = std::move(threads),
                                    .layout = {find_format("f32"), kSampleBlock, model.kv_layers()},
                                    .blocks = kSampledStreams * each,
                                    .places = {},
                                    .limits = {kSampledStreams, kSampledStreams, each * kSampleBlock},
                                    .streams = kSampledStreams}));
  NpuCalibration calibration(model);
  runner->hooks().add(calibration);
  std::vector<std::vector<BlockId>> blocks(kSampledStreams);
  std::vector<TokenId> next;
  for (auto& own : blocks)
    for (int64_t i = 0; i < each; ++i) {
      MILLRACE_TRY(const BlockId block, runner->kv().allocate());
      own.push_back(block);
    }
  for (uint64_t s = 0; s < kSampledStreams; ++s)
    next.push_back(static_cast<TokenId>(philox_uniform(0, s, 0) * static_cast<double>(spec.vocab)));
  for (int64_t t = 0; t < tokens; ++t) {
    runner->start();
    for (size_t s = 0; s < blocks.size(); ++s) {
      runner->begin(blocks[s], t, nullptr, static_cast<StateId>(s));
      runner->add(next[s], t, true);
    }
    runner->forward();
    MILLRACE_TRY_VOID(runner->take_failure());
    for (size_t s = 0; s < blocks.size(); ++s)
      next[s] = sample_token(runner->logits(static_cast<int64_t>(s)), spec.vocab, s, t);
  }
  return calibration.scales();
}

}  // namespace millrace
