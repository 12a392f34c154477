// Window attention with a rolling cache: keeps the newest tokens only. The baseline that breaks on models with
// attention sinks, since it drops the first tokens.
#include "kv/token_evictors/factories.h"

namespace millrace {
namespace {

class Window final : public TokenEvictor {
 public:
  explicit Window(int64_t budget) : budget_(budget) {}
  int64_t budget() const override { return budget_; }
  void drop(const StoredTokens&, int64_t excess, std::vector<int32_t>& slots) const override {
    for (int64_t i = 0; i < excess; ++i) slots.push_back(static_cast<int32_t>(i));
  }

 private:
  int64_t budget_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_window(const OptionValues& options) {
  return std::unique_ptr<const TokenEvictor>(std::make_unique<Window>(options.integer("budget")));
}

}  // namespace millrace
