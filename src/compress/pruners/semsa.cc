// SemSA, later MoA (Fu et al., 2024, "MoA: Mixture of Sparse Attention for Automatic Large Language Model
// Compression"): finds how far back each KV head should see, on the calibration text, and stores these windows in the
// file's metadata (run/plan/stored_pattern.h). The weights stay as they are, and so does the model, until it is run
// with `--use attention=semsa`. The search is that of `millrace window-search` (evaluate/window_search.h).
#include <fmt/format.h>

#include "compress/factories.h"
#include "compress/structural_pass.h"
#include "evaluate/window_search.h"
#include "run/plan/stored_pattern.h"

namespace millrace {
namespace {

class SemSaPass final : public StructuralPass {
 public:
  explicit SemSaPass(const OptionValues& options)
      : search_{.block = options.integer("block"), .sinks = options.integer("sinks"), .keys = options.number("keys")} {}

  Result<void> reshape(StructuralWork& work) override {
    WindowSearchOptions search = search_;
    search.context = work.calibration->context();
    MILLRACE_TRY_VOID(check_window_layers(work.spec, search.context, "--pass semsa"));
    WindowMeter meter(search);
    MILLRACE_TRY_VOID(
        work.calibration->run(meter, {.to = work.spec.layer_count()}, false, [] { return Result<void>(); }));
    const auto gains = meter.gains();
    const ChosenWindows own = choose_windows(gains, search.keys), same = same_window(gains, search.keys);
    work.report.push_back(
        {"attention",
         PassRow{"windows",
                 own.text(),
                 {{"keys_seen", own.keys}, {"attention_kept", own.mass}, {"kept_by_one_window_for_all", same.mass}}}});
    work.plan.writer.set_string(stored_pattern_key("semsa"),
                                fmt::format("block={},sinks={},windows={}", search.block, search.sinks, own.text()));
    return {};
  }

 private:
  WindowSearchOptions search_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_semsa_pass(const OptionValues& options) {
  return std::unique_ptr<Pass>(std::make_unique<SemSaPass>(options));
}

}  // namespace millrace
