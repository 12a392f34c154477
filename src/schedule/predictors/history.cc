// Learns from past answers: the decaying mean length of answers to the same tenant's prompts of similar size (powers of
// two), else to all prompts of that size, else to all prompts.
#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "schedule/predictors/factories.h"

namespace millrace {
namespace {

constexpr size_t kMaxHistories = 1024;

class History final : public Predictor {
 public:
  explicit History(double decay) : decay_(decay) {}

  double answer_tokens(const Sequence& stream) const override {
    if (stream.request.predicted_tokens >= 0) return static_cast<double>(stream.request.predicted_tokens);
    const size_t size = bucket(stream);
    if (auto found = tenants_.find(stream.request.tenant); found != tenants_.end() && found->second[size].seen >= 4)
      return found->second[size].mean;
    if (everybody_[size].seen >= 4) return everybody_[size].mean;
    return all_.seen > 0 ? all_.mean : 128.0;
  }

  void learn(const Sequence& stream) override {
    const auto length = static_cast<double>(stream.generated());
    const size_t size = bucket(stream);
    all_.add(length, decay_);
    everybody_[size].add(length, decay_);
    auto found = tenants_.find(stream.request.tenant);
    if (found == tenants_.end() && tenants_.size() < kMaxHistories)
      found = tenants_.try_emplace(stream.request.tenant).first;
    if (found != tenants_.end()) found->second[size].add(length, decay_);
  }

 private:
  struct Mean {
    double mean = 0;
    int64_t seen = 0;
    void add(double x, double decay) {
      ++seen;
      mean += (x - mean) * std::max(decay, 1.0 / static_cast<double>(seen));
    }
  };
  using Sizes = std::array<Mean, 32>;
  static size_t bucket(const Sequence& stream) {
    return std::min<size_t>(31, std::bit_width(static_cast<uint64_t>(stream.prompt_tokens)));
  }

  double decay_;
  Mean all_;
  Sizes everybody_{};
  std::map<std::string, Sizes, std::less<>> tenants_;
};

}  // namespace

std::unique_ptr<Predictor> make_history(const OptionValues& options) {
  return std::make_unique<History>(options.number("decay"));
}

}  // namespace millrace
