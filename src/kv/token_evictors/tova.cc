// TOVA: keeps the tokens to which the newest query pays most attention; not even the newest token is safe. One choice
// for all layers and heads; in the paper every layer chooses, by the average over its heads.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/lowest.h"

namespace millrace {
namespace {

class Tova final : public TokenEvictor {
 public:
  explicit Tova(int64_t budget) : budget_(budget) {}
  int64_t budget() const override { return budget_; }
  MassRule mass_rule() const override { return {.queries = 1}; }
  void drop(const StoredTokens& stored, int64_t excess, std::vector<int32_t>& slots) const override {
    const auto mass = [&](int32_t slot) { return stored.mass[static_cast<size_t>(slot)]; };
    drop_lowest(std::ssize(stored.positions), excess, mass, slots);
  }

 private:
  int64_t budget_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_tova(const OptionValues& options) {
  return std::unique_ptr<const TokenEvictor>(std::make_unique<Tova>(options.integer("budget")));
}

}  // namespace millrace
