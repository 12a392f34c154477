#include "kv/token_evictors/layer_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace millrace {
namespace {

// So that no product in budgets_by_share() overflows.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;

class SharedBudgets final : public TokenEvictor {
 public:
  SharedBudgets(std::string name, bool heads, std::unique_ptr<const TokenEvictor> one, std::vector<int64_t> budgets)
      : name_(std::move(name)), heads_(heads), one_(std::move(one)), budgets_(std::move(budgets)) {}
  int64_t budget() const override { return one_->budget(); }
  bool by_layer() const override { return true; }
  bool by_head() const override { return heads_; }
  int64_t budget_of(int64_t layer, int64_t /*layers*/) const override {
    return budgets_[static_cast<size_t>(std::min(layer, std::ssize(budgets_) - 1))];
  }
  Result<void> check_layers(int64_t layers, int64_t kv_heads) const override {
    if ((heads_ ? layers * kv_heads : layers) == std::ssize(budgets_)) return {};
    if (heads_)
      return Error::user(fmt::format(
          "evictor {}: heads: has shares of {} KV heads, the model has {}, {} in each of {} layers; millrace "
          "budget-search --heads finds those of a model",
          name_, budgets_.size(), layers * kv_heads, kv_heads, layers));
    return Error::user(
        fmt::format("evictor {}: layers: has shares of {} layers, the model has {}; millrace budget-search finds those "
                    "of a model",
                    name_, budgets_.size(), layers));
  }
  MassRule mass_rule() const override { return one_->mass_rule(); }
  bool judges_keys() const override { return one_->judges_keys(); }
  int64_t key_worth(std::span<const float> key) const override { return one_->key_worth(key); }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    one_->drop(stored, excess, slots);
  }

 private:
  std::string name_;
  bool heads_;
  std::unique_ptr<const TokenEvictor> one_;
  std::vector<int64_t> budgets_;
};

}  // namespace

Result<std::vector<int64_t>> read_shares(std::string_view list, std::string_view unit, int64_t most) {
  std::vector<int64_t> shares;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find('.', begin), list.size());
    const std::string_view one = list.substr(begin, end - begin);
    int64_t share = 0;
    const auto [stop, error] = std::from_chars(one.data(), one.data() + one.size(), share);
    if (error != std::errc() || stop != one.data() + one.size() || share < 1 || share > kMaxShare)
      return Error::user(fmt::format(
          "must be a whole number from 1 to {} for each {}, with dots between them, got '{}'", kMaxShare, unit, one));
    shares.push_back(share);
    begin = end + 1;
  }
  if (std::ssize(shares) > most)
    return Error::user(fmt::format("must be of at most {} {}s, got {}", most, unit, shares.size()));
  return shares;
}

std::vector<int64_t> budgets_by_share(const std::vector<int64_t>& shares, int64_t average, int64_t least) {
  least = std::min(least, average);
  const int64_t above = (average - least) * std::ssize(shares);
  const int64_t all = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  std::vector<int64_t> budgets, order(shares.size());
  int64_t left = above;
  for (const int64_t share : shares) {
    budgets.push_back(least + above * share / all);
    left -= above * share / all;
  }
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto fraction = [&](int64_t i) { return above * shares[static_cast<size_t>(i)] % all; };
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return fraction(a) > fraction(b); });
  for (int64_t i = 0; i < left; ++i) ++budgets[static_cast<size_t>(order[static_cast<size_t>(i)])];
  return budgets;
}

Result<std::unique_ptr<const TokenEvictor>> with_shares(std::string_view name, const OptionValues& options,
                                                        std::unique_ptr<const TokenEvictor> one, int64_t least) {
  const std::string &layers = options.text("layers"), &heads = options.text("heads");
  if (layers.empty() && heads.empty()) return one;
  if (!layers.empty() && !heads.empty())
    return Error::user(fmt::format("evictor {}: heads: budgets are of layers or of heads; omit heads or layers", name));
  const bool by_head = layers.empty();
  const auto shares = by_head ? read_shares(heads, "KV head", kMaxHeads) : read_shares(layers, "layer", kMaxLayers);
  if (!shares.ok())
    return Error::user(fmt::format("evictor {}: {}: {}", name, by_head ? "heads" : "layers", shares.error().message));
  std::vector<int64_t> budgets = budgets_by_share(*shares, one->budget(), std::max<int64_t>(1, least));
  return std::unique_ptr<const TokenEvictor>(
      std::make_unique<SharedBudgets>(std::string(name), by_head, std::move(one), std::move(budgets)));
}

}  // namespace millrace
