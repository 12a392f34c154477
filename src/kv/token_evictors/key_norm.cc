// Key norm (Devoto et al., 2024, "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression"): keeps the
// tokens whose keys have the lowest L2 norm, since these tend to receive most attention. No attention is observed: a
// key's norm is known when it is stored, and RoPE does not change it. In the paper every head chooses, the newest
// tokens are not kept, and the first two layers keep everything: scope=head,recent=0, or skip=2, where each of the
// other layers chooses by the norms of all its heads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/layer_shares.h"
#include "kv/token_evictors/lowest.h"
#include "kv/token_evictors/recent.h"

namespace millrace {
namespace {

constexpr double kNormUnit = 1.0 / (1 << 20);
constexpr double kMaxNorm = kNormUnit * static_cast<double>(TokenEvictor::kMaxKeyWorth);

class KeyNorm final : public TokenEvictor {
 public:
  KeyNorm(int64_t budget, int64_t recent, int64_t skip) : budget_(budget), recent_(recent), skip_(skip) {}
  int64_t budget() const override { return budget_; }
  bool by_layer() const override { return skip_ > 0; }
  int64_t budget_of(int64_t layer, int64_t /*layers*/) const override { return layer < skip_ ? kUnbounded : budget_; }
  Result<void> check_layers(int64_t layers, int64_t /*kv_heads*/) const override {
    if (skip_ < layers) return {};
    return Error::user(
        fmt::format("evictor key_norm: skip: must be less than the model's {} layers, or nothing is dropped, got {}",
                    layers, skip_));
  }
  bool judges_keys() const override { return true; }
  // The lower the norm, the more a token is worth.
  int64_t key_worth(std::span<const float> key) const override {
    double squares = 0;
    for (const float one : key) squares += static_cast<double>(one) * static_cast<double>(one);
    const double norm = std::sqrt(squares);
    return -std::llround((norm < kMaxNorm ? norm : kMaxNorm) / kNormUnit);
  }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const auto worth = [&](int32_t slot) { return stored.worth[static_cast<size_t>(slot)]; };
    drop_lowest(std::ssize(stored.positions) - recent_, excess, worth, slots);
  }

 private:
  int64_t budget_, recent_, skip_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_key_norm(const OptionValues& options) {
  const int64_t budget = options.integer("budget");
  const int64_t skip = options.integer("skip");
  for (const char* shares : {"layers", "heads"})
    if (skip > 0 && !options.text(shares).empty())
      return Error::user(fmt::format(
          "evictor key_norm: skip: layers that keep all tokens have no share in the budget; omit skip or {}", shares));
  MILLRACE_TRY(int64_t recent, read_recent("key_norm", options, budget));
  recent = std::min(budget, recent);
  return with_shares("key_norm", options, std::make_unique<KeyNorm>(budget, recent, skip), recent);
}

}  // namespace millrace
