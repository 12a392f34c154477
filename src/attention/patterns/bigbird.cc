// BigBird, its block form, causal: a window, global blocks at the beginning, and random blocks between them.
#include "attention/patterns/factories.h"
#include "attention/patterns/random_graph.h"

namespace millrace {
namespace {

class BigBird final : public AttentionPattern {
 public:
  explicit BigBird(const OptionValues& options) : graph_(options) {}
  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const override {
    graph_.mark(at, query_block, marks);
  }

 private:
  RandomGraph graph_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_bigbird(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<BigBird>(options));
}

}  // namespace millrace
