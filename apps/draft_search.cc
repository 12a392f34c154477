// millrace draft-search: which blocks of a model the drafter `self` should leave out.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "evaluate/skip_measure.h"
#include "input.h"
#include "interrupt.h"
#include "model_flags.h"
#include "progress.h"
#include "run/drafting/skip_choice.h"

namespace millrace {
namespace {

constexpr const char* kSearchExamples = R"(Examples:
  millrace draft-search -m model.gguf -f answers.txt -o skips.json        then: millrace run --drafter self:skip=skips.json
  millrace draft-search -m model.gguf -f answers.txt -o skips.json --method random --trials 300 --json
The text should be like what the model writes, best of all answers of its own.)";

struct SearchFlags {
  ModelFlags model;
  std::string file, out, method = "bayes";
  SkipSearchOptions search;
  SkipMeasureOptions measure;
  int64_t tokens = 4096;
  bool json = false;
};

struct Found {
  SkippedBlocks skipped;
  SkipGain gain;
  int64_t trials = 0;
};

Result<Found> search(const SearchFlags& flags, const LanguageModel& model, SkipMeasure& measure) {
  ProgressBar bar("searching");
  Found found;
  SkipSearchOptions options = flags.search;
  options.bayes = flags.method == "bayes";
  options.first = {skip_vector(default_skips(model.parts().model->spec()))};
  const auto value = [&](const SkipVector& vector) -> Result<double> {
    if (interrupted()) return Error::cancelled("interrupted");
    const SkippedBlocks skipped = skipped_blocks(vector);
    MILLRACE_TRY(const SkipGain gain, measure.measure(skipped));
    if (found.trials++ == 0 || gain.gain > found.gain.gain) found.skipped = skipped, found.gain = gain;
    bar.update(static_cast<double>(found.trials) / static_cast<double>(options.trials),
               fmt::format("gain {:.3f}", found.gain.gain));
    return gain.gain;
  };
  const auto best = search_skips(2 * measure.layers(), options, value);
  if (!best.ok() && (best.error().kind != ErrorKind::cancelled || found.trials == 0)) return best.error();
  return found;
}

Result<int> run_search(SearchFlags flags) {
  MILLRACE_TRY(const std::string text, read_text_file(flags.file));
  MILLRACE_TRY(auto model, flags.model.load());
  MILLRACE_TRY(std::vector<TokenId> tokens, model->encode(text));
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(flags.tokens)));
  flags.measure.threads = flags.model.threads;
  MILLRACE_TRY(const auto measure, SkipMeasure::create(model, std::move(tokens), flags.measure));
  catch_interrupts();
  MILLRACE_TRY(const Found found, search(flags, *model, *measure));
  MILLRACE_TRY_VOID(write_skips(flags.out, found.skipped, *model));
  const SkipGain& gain = found.gain;
  if (flags.json) {
    print_json_line({{"attention", layers_text(found.skipped.attention)},
                     {"mlp", layers_text(found.skipped.mlp)},
                     {"k", gain.k},
                     {"gain", gain.gain},
                     {"kept", gain.kept},
                     {"cost", gain.cost},
                     {"method", flags.method},
                     {"trials", found.trials},
                     {"drafts", measure->drafts()}});
    return interrupted() ? 130 : 0;
  }
  fmt::print("left out: attention of {}, MLPs of {}; a drafting pass costs {:.2f} of a whole one\n",
             layers_text(found.skipped.attention), layers_text(found.skipped.mlp), gain.cost);
  fmt::print("expected: {:.2f} of {} drafted tokens kept, {:.2f} times the tokens a second ({} trials, {} drafts)\n",
             gain.kept, gain.k, gain.gain, found.trials, measure->drafts());
  fmt::print("use it:   --drafter self:k={},skip={}\n", gain.k, flags.out);
  return interrupted() ? 130 : 0;
}

}  // namespace

void add_draft_search_command(CLI::App& app) {
  auto flags = std::make_shared<SearchFlags>();
  CLI::App* command = add_command(app, "draft-search", "Find the blocks that a model drafts best without",
                                  kSearchExamples, [=] { return run_search(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  command->add_option("-o,--output", flags->out, "File to write")->required();
  command->add_option("--method", flags->method, "bayes (a Gaussian process chooses each trial) or random")
      ->capture_default_str()
      ->check(CLI::IsMember({"bayes", "random"}));
  command->add_option("--trials", flags->search.trials, "Sets of blocks to try")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1000}));
  command->add_option("--draft-max", flags->measure.longest, "Tokens of the longest draft")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{32}));
  command->add_option("--tokens", flags->tokens, "Tokens of the text to use, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{128}, int64_t{1} << 20));
  command->add_option("--seed", flags->search.seed, "Seed of the trials")->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
