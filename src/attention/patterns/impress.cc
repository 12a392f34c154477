// IMPRESS (Chen et al., 2025): heads of a layer find nearly the same tokens important, so a few probe heads decide what
// is read for all of them. The KV heads are divided into `probes` runs of neighbours, and the first head of each run
// judges for the run, by the bounds of key_bounds.h. The paper reads all keys of its probe heads, ranks single tokens,
// and decides once for a prefix; here a judge has the bounds of its blocks, and decides for every query.
#include <algorithm>

#include "attention/patterns/key_bounds.h"

namespace millrace {
namespace {

class Impress final : public KeyBounds {
 public:
  explicit Impress(const OptionValues& options) : KeyBounds(options), probes_(options.integer("probes")) {}

  int64_t judge(const PatternPlace& at) const override {
    const int64_t probes = std::min(probes_, at.heads), run = (at.heads + probes - 1) / probes;
    return at.head / run * run;
  }

 private:
  int64_t probes_;
};

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_impress(const OptionValues& options) {
  return std::unique_ptr<AttentionPattern>(std::make_unique<Impress>(options));
}

}  // namespace millrace
