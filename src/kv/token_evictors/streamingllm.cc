// StreamingLLM: keeps the first tokens of the text, on which models put attention that has nowhere else to go, and a
// window of the newest ones. Keys keep the positions at which they were computed; in the paper positions are counted
// within the cache.
#include "kv/token_evictors/factories.h"

namespace millrace {
namespace {

class StreamingLlm final : public TokenEvictor {
 public:
  StreamingLlm(int64_t sinks, int64_t window) : sinks_(sinks), window_(window) {}
  int64_t budget() const override { return sinks_ + window_; }
  void drop(const StoredTokens&, int64_t excess, std::vector<int32_t>& slots) const override {
    for (int64_t i = 0; i < excess; ++i) slots.push_back(static_cast<int32_t>(sinks_ + i));
  }

 private:
  int64_t sinks_, window_;
};

}  // namespace

Result<std::unique_ptr<const TokenEvictor>> make_streamingllm(const OptionValues& options) {
  return std::unique_ptr<const TokenEvictor>(
      std::make_unique<StreamingLlm>(options.integer("sinks"), options.integer("window")));
}

}  // namespace millrace
