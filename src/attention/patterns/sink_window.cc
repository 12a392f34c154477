// StreamingLLM as a pattern: the first blocks, on which models put attention that has nowhere else to go, and the
// newest ones. All keys stay stored; the token evictor of that name drops them.
#include "attention/patterns/factories.h"

namespace millrace {
namespace {

class SinkWindow final : public AttentionPattern {
 public:
  SinkWindow(int64_t sinks, int64_t window) : sinks_(sinks), window_(window) {}
  void mark(const PatternPlace&, int64_t query_block, BlockMarks& marks) const override {
    marks.add(0, sinks_);
    marks.add(query_block - window_ + 1, query_block);
  }

 private:
  int64_t sinks_, window_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_sink_window(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(
      std::make_unique<SinkWindow>(options.integer("sinks"), options.integer("window")));
}

}  // namespace millrace
