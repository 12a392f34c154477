// PCRL (Jung and Kim, 2023, Discrete Prompt Compression with Reinforcement Learning): a policy that was trained by
// reinforcement keeps or drops each token of a prompt, in one step. It is two layers on the final hidden states of a
// frozen encoder (prompt/keep_policy.h, network "policy"). The policy is not part of millrace: a file has it.
//
//   tokens        Tom   went  to    the   park        threshold 0.5, room for two tokens
//   probability   0.9   0.4   0.1   0.2   0.7         kept: Tom, park
#include <algorithm>
#include <numeric>
#include <utility>

#include "prompt/compression_task.h"
#include "prompt/compressors/factories.h"
#include "prompt/keep_policy.h"

namespace millrace {
namespace {

constexpr const char* kNetwork = "policy";

class Pcrl final : public CompressorWithOptions {
 public:
  Pcrl(CompressionOptions options, std::string policy, double threshold)
      : CompressorWithOptions(std::move(options)), policy_(std::move(policy)), threshold_(threshold) {}

  PromptNeeds needs() const override { return kNeedsEmbeddings; }
  std::string file() const override { return policy_; }
  Result<std::shared_ptr<const PromptFile>> open_file() const override {
    MILLRACE_TRY(auto opened, PolicyFile::open(policy_, {kNetwork}));
    return std::shared_ptr<const PromptFile>(std::move(opened));
  }

  Result<PromptRest> compress(const PromptView& prompt, PromptScores& scores, int64_t budget) const override {
    const CompressionTask task = CompressionTask::create(prompt, options_, budget);
    MILLRACE_TRY(const auto opened, scores.file("pcrl", policy_));
    const auto policy = std::static_pointer_cast<const PolicyFile>(opened);
    std::vector<double> keep(prompt.tokens.size());
    const auto read = [&](size_t token, std::span<const float> state) -> Result<void> {
      if (task.fixed[token]) return {};
      MILLRACE_TRY_VOID(policy->check_width(kNetwork, state.size()));
      keep[token] = policy->network(kNetwork).keep_probability(state);
      return {};
    };
    MILLRACE_TRY_VOID(scores.hidden_states(options_.model, prompt.tokens, read));
    return PromptRest{remaining(dropped(task, keep))};
  }

 private:
  // Drops the tokens below the threshold, and the least probable ones until the rest fits.
  std::vector<char> dropped(const CompressionTask& task, const std::vector<double>& keep) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < keep.size(); ++i)
      if (!task.fixed[i]) order.push_back(i);
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(-keep[i], i); });
    std::vector<char> out(keep.size());
    const size_t others = keep.size() - order.size();
    for (size_t place = 0; place < order.size(); ++place) {
      const bool fits = static_cast<int64_t>(place) < task.keep;
      const bool wanted = keep[order[place]] >= threshold_ || (place == 0 && others == 0);  // a prompt is never empty
      out[order[place]] = !(fits && wanted);
    }
    return out;
  }

  const std::string policy_;
  const double threshold_;
};

}  // namespace

Result<std::unique_ptr<PromptCompressor>> make_pcrl(const OptionValues& options) {
  MILLRACE_TRY(auto shared, CompressionOptions::read(options, true, true));
  if (options.text("policy").empty())
    return Error::user(
        "policy: names a file, the safetensors of a trained policy; millrace has none (docs/prompt-compression.md)");
  return std::unique_ptr<PromptCompressor>(
      std::make_unique<Pcrl>(std::move(shared), options.text("policy"), options.number("threshold")));
}

}  // namespace millrace
