// CompareSuite: a test by which `millrace compare` measures configurations. A suite is a list of items, each of which
// has one value per metric: a question, a window of text, a round of a measurement. It is one file under suites/ and
// one name in builtin.cc. Order, averages, confidence intervals, resuming and partial results are handled by
// suite_run.h.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/registry.h"
#include "compare/config.h"

namespace millrace {

struct SuiteInput {
  std::string argument;  // behind the colon: lab:needle
  std::string text;      // the contents of --text; "" if not given
  int64_t items = 0;     // most items; 0: the suite's default
  int64_t rounds = 3;    // rounds of timed metrics
  int64_t prompt = 256;  // tokens of the prompt and of the answer in timed rounds
  int64_t generate = 64;
  int threads = 0;  // 0: all cores
};

enum class SuiteAverage : uint8_t {
  mean,
  exponential,  // exponential of the mean: a perplexity, from values in nats
  median,
};

struct SuiteMetric {
  std::string name;
  bool more_is_better = true;
  SuiteAverage average = SuiteAverage::mean;
};

// Parts of a configuration that a suite's values depend on. A lossy technique elsewhere cannot change them (unseen.h).
struct SuiteSight {
  bool quality = true;       // false: speed or memory, in which no loss shows
  bool generates = true;     // answers, whose tokens are drafted and sampled
  bool drops_tokens = true;  // evictors that leave prompts whole drop tokens before the values are read
  bool documents = false;    // prompts have documents
};

struct SuitePlan {
  std::string name;      // in results: "lab:copy"
  std::string identity;  // changes with everything that changes an item's value: values are kept under it
  std::vector<SuiteMetric> metrics;
  std::vector<std::string> items;  // group of each item, with separate figures; "": none
  int64_t at_once = 1;             // items that a configuration measures before the next one has its turn
  bool timed = false;              // values differ from run to run
  bool overall = true;             // false: averages over different groups mean nothing; the last group stands for all
  SuiteSight sight;
};

inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();
using SuiteWanted = std::function<bool()>;  // false: stop, with the error cancelled

class SuiteRun {
 public:
  virtual ~SuiteRun() = default;
  const SuitePlan& plan() const { return plan_; }
  const std::vector<std::string>& notes() const { return notes_; }  // notes for readers of its values
  // [configs]: the reason why the values cannot show a configuration's loss; "": they can. Set by begin_suite().
  const std::vector<std::string>& unseen() const { return unseen_; }
  void set_unseen(std::vector<std::string> reasons, std::span<const CompareConfig> configs);
  // Returns [items, metrics]; kNoValue where there is none. Values that are not timed have the same bits each time, for
  // any measurements before. Errors: cancelled, unsupported (this configuration cannot run the suite), those of the
  // engine.
  virtual Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                           const SuiteWanted& wanted) = 0;

 protected:
  SuitePlan plan_;
  std::vector<std::string> notes_, unseen_;
};

struct CompareSuite {
  std::string_view name;
  std::string_view argument;  // "TASK"; "": takes none
  std::string_view summary;
  std::string_view paper;
  // `configs` outlive the run. Errors: user (the argument, requirements of the suite), corrupt (a file).
  Result<std::unique_ptr<SuiteRun>> (*begin)(std::span<const CompareConfig> configs, const SuiteInput& input) = nullptr;
};

const Registry<const CompareSuite*>& compare_suites();

// NAME or NAME:argument. Errors: user (unknown name; an argument that is missing or not taken), those of begin().
Result<std::unique_ptr<SuiteRun>> begin_suite(std::string_view text, std::span<const CompareConfig> configs,
                                              SuiteInput input);

}  // namespace millrace
