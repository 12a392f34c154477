// Pieces of a text that are cut into documents and what follows: perplexity of the latter, and per token the
// Kullback-Leibler divergence from the base's predictions and the agreement of the likeliest tokens. Unlike exercises
// whose documents say nothing of each other, parts of one text need each other. All configurations score a case before
// the next one, so that only one case's predictions of the base are in memory.
#include <fmt/format.h>

#include <charconv>

#include "compare/document_cases.h"
#include "compare/suite_text.h"
#include "compare/suites/records.h"
#include "run/language_model.h"

namespace millrace {
namespace {

constexpr int64_t kDefaultCases = 20;

class DocumentsRun final : public SuiteRun {
 public:
  static Result<std::unique_ptr<SuiteRun>> begin(std::span<const CompareConfig> configs, const SuiteInput& input);

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                   const SuiteWanted& wanted) override {
    if (configs_[config].external) return Error::unsupported("other engines have no document contexts");
    std::vector<std::vector<double>> out;
    for (const size_t item : items) {
      if (item != base_item_) {
        MILLRACE_TRY(base_, predict(0, item, wanted));
        base_item_ = item;
      }
      std::vector<float> other;
      if (config != 0) {
        MILLRACE_TRY(other, predict(config, item, wanted));
      }
      const DocumentScore score = score_behind(cases_[item], base_, config == 0 ? base_ : other);
      out.push_back({score.nll, score.kl, score.same_top});
    }
    return out;
  }

 private:
  explicit DocumentsRun(std::span<const CompareConfig> configs) : configs_(configs), engines_(configs.size()) {}

  Result<std::vector<float>> predict(size_t config, size_t item, const SuiteWanted& wanted) {
    if (!engines_[config]) {
      MILLRACE_TRY(engines_[config], make_compare_engine(configs_[config], 1, longest_));
    }
    return predict_behind(*engines_[config], cases_[item], "", configs_[config].model->info().vocab, wanted);
  }

  std::span<const CompareConfig> configs_;
  std::vector<DocumentCase> cases_;
  int64_t longest_ = 0;
  std::vector<std::unique_ptr<Engine>> engines_;  // created when first asked
  std::vector<float> base_;                       // predictions of the base, of item base_item_
  size_t base_item_ = SIZE_MAX;
};

Result<DocumentCut> cut_of(const std::string& argument, std::span<const CompareConfig> configs) {
  constexpr int64_t kMax = 64;
  DocumentCut cut;
  if (!argument.empty()) {
    const char *begin = argument.data(), *end = begin + argument.size();
    const auto [rest, error] = std::from_chars(begin, end, cut.documents);
    if (error != std::errc() || rest != end || cut.documents < 1 || cut.documents > kMax)
      return Error::user(fmt::format("'{}' is no number of documents; must be 1 to {}", argument, kMax));
  }
  for (const CompareConfig& config : configs)
    if (config.model && compare_context(config) < cut.longest())
      return Error::user(fmt::format("{} documents of {} tokens and {} behind them do not fit the context of {}",
                                     cut.documents, cut.size, cut.scored, compare_context(config)));
  return cut;
}

Result<std::unique_ptr<SuiteRun>> DocumentsRun::begin(std::span<const CompareConfig> configs, const SuiteInput& input) {
  if (input.text.empty()) return Error::user("needs a text; name it by --text FILE");
  if (!configs.front().model) return Error::user("the base must be a configuration of millrace");
  MILLRACE_TRY(const DocumentCut cut, cut_of(input.argument, configs));
  MILLRACE_TRY(const auto tokens, configs.front().model->encode(input.text, true, false));
  for (const CompareConfig& config : configs) {
    if (!config.model) continue;
    MILLRACE_TRY(const auto own, config.model->encode(input.text, true, false));
    if (own != tokens || config.model->info().vocab != configs.front().model->info().vocab)
      return Error::user(fmt::format("'{}' has another vocabulary than the base, so its predictions do not compare",
                                     config.spec.text));
  }
  auto run = std::unique_ptr<DocumentsRun>(new DocumentsRun(configs));
  run->longest_ = cut.longest();
  run->cases_ = cut_documents(*configs.front().model, tokens, cut, input.items > 0 ? input.items : kDefaultCases);
  if (run->cases_.empty())
    return Error::user(fmt::format("--text has {} tokens, fewer than the {} of {} documents and what follows",
                                   tokens.size(), cut.tokens(), cut.documents));
  run->plan_ = {.name = "documents",
                .identity = identity_of({input.text, std::to_string(cut.documents)}),
                .metrics = {{"perplexity", false, SuiteAverage::exponential},
                            {"kl_divergence", false, SuiteAverage::mean},
                            {"same_top_token", true, SuiteAverage::mean}},
                .items = std::vector<std::string>(run->cases_.size()),
                .sight = {.generates = false, .drops_tokens = false, .documents = true}};
  return std::unique_ptr<SuiteRun>(std::move(run));
}

}  // namespace

const CompareSuite kDocumentsSuite = {
    .name = "documents",
    .argument = "[COUNT]",
    .summary = "how well the model predicts what follows documents, into which --text is cut",
    .paper = "",
    .begin = DocumentsRun::begin,
};

}  // namespace millrace
