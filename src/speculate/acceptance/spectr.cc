// The k-sequential selection of SpecTr (Sun et al., 2023, SpecTr: Fast Speculative Decoding via Optimal Transport): of
// k tokens drawn from the same q, each in turn is accepted with probability min(1, p(x) / (rho q(x))). One is with
// probability 1 - (1 - b)^k, where b = sum of min(q, p / rho); else the token is drawn from what these leave of p:
//
//   p(x) - min(q(x), p(x) / rho) * (1 - (1 - b)^k) / b          which is nowhere negative while (1 - (1 - b)^k) / b <=
//   rho
//
// The smallest such rho accepts most; it is between 1 and k and is found by bisection. With k = 1 this is `sampling`.
#include <cmath>

#include "speculate/acceptance/residual.h"

namespace millrace {
namespace {

constexpr int kBisections = 30;

class SpecTr final : public Acceptance {
 public:
  bool needs_odds() const override { return true; }
  TokenId choose(SamplingRow& row, std::span<const DraftedToken> drafted, std::vector<double>& scratch) const override {
    const DraftOdds* odds = drafted.front().odds;
    if (!odds) return draw(row).value();
    const FinalRow final(row);
    scratch.resize(final.size());
    for (size_t i = 0; i < final.size(); ++i) scratch[i] = odds->of(final.token(i));
    const auto k = static_cast<double>(drafted.size());
    const double rho = factor(final, scratch, k);
    for (size_t trial = 0; trial < drafted.size(); ++trial) {
      const TokenId token = drafted[trial].token;
      if (row.uniform(RandomStream::accept, trial) * rho * odds->of(token) < final.p_of(token)) return token;
    }
    const double b = overlap(final, scratch, rho);
    const double share = b > 0 ? any_of(b, k) / b : 0;
    for (size_t i = 0; i < final.size(); ++i)
      scratch[i] = std::max(0.0, final.p(i) - std::min(scratch[i], final.p(i) / rho) * share);
    return draw_weighted(row, scratch, row.uniform(RandomStream::residual));
  }

 private:
  static double any_of(double b, double k) { return 1 - std::pow(1 - std::min(1.0, b), k); }
  static double overlap(const FinalRow& final, std::span<const double> q, double rho) {
    double sum = 0;
    for (size_t i = 0; i < q.size(); ++i) sum += std::min(q[i], final.p(i) / rho);
    return sum;
  }
  // rho * overlap grows with rho and any_of() falls, so the allowed ones are those from some rho on; k is one.
  static double factor(const FinalRow& final, std::span<const double> q, double k) {
    double low = 1, high = k;
    if (k == 1) return 1;
    for (int i = 0; i < kBisections; ++i) {
      const double middle = (low + high) / 2, b = overlap(final, q, middle);
      (middle * b >= any_of(b, k) ? high : low) = middle;
    }
    return high;
  }
};

}  // namespace

Result<std::unique_ptr<Acceptance>> make_spectr_acceptance(const OptionValues&) {
  return std::unique_ptr<Acceptance>(std::make_unique<SpecTr>());
}

}  // namespace millrace
