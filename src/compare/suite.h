// CompareSuite: a test with which `millrace compare` measures configurations. A suite is a list of items, for example
// questions, windows of text, or rounds of a measurement. Each item has one value for each metric. Each suite is one
// file under suites/ and one name in builtin.cc. suite_run.h handles order, averages, confidence intervals, resuming
// and partial results.
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
  std::string argument;  // the part after the colon: "needle" of lab:needle
  std::string text;      // the contents of --text; "" if not given
  int64_t items = 0;     // maximum number of items; 0: the suite's default
  int64_t rounds = 3;    // number of rounds of timed metrics
  int64_t prompt = 256;  // tokens of the prompt in timed rounds; `generate`: tokens of the answer
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

// The parts of a configuration that a suite's values depend on. Lossy techniques in other parts cannot change the
// values (unseen.h).
struct SuiteSight {
  bool quality = true;       // false: the suite measures speed or memory, which do not show a loss
  bool generates = true;     // true: answers are generated, with drafting and sampling
  bool drops_tokens = true;  // true: the values also depend on evictors that drop tokens only after the prompt
  bool documents = false;    // true: prompts have documents
  bool prompts = false;      // true: prompts pass through prompt compressors
};

struct SuitePlan {
  std::string name;      // in results: "lab:copy"
  std::string identity;  // identifies everything that the items' values depend on; the journal stores values by it
  std::vector<SuiteMetric> metrics;
  std::vector<std::string> items;  // group of each item, for which figures are also computed; "": none
  int64_t at_once = 1;             // number of items that one configuration measures before the next one
  bool timed = false;              // true: values differ from run to run
  // False: averages over different groups have no meaning; the last group's figures are used instead.
  bool overall = true;
  SuiteSight sight;
};

inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();
using SuiteWanted = std::function<bool()>;  // returns false to stop with the error "cancelled"

class SuiteRun {
 public:
  virtual ~SuiteRun() = default;
  const SuitePlan& plan() const { return plan_; }
  const std::vector<std::string>& notes() const { return notes_; }  // notes for readers of the values
  // Returns for each configuration the reason why the values cannot show its loss; "": they can. Set by begin_suite().
  const std::vector<std::string>& unseen() const { return unseen_; }
  void set_unseen(std::vector<std::string> reasons, std::span<const CompareConfig> configs);
  // Returns values [items, metrics]; kNoValue: no value. Values that are not timed have the same bits in every run, and
  // do not depend on earlier measurements. Errors: cancelled, unsupported (this configuration cannot run the suite),
  // those of the engine.
  virtual Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                           const SuiteWanted& wanted) = 0;

 protected:
  SuitePlan plan_;
  std::vector<std::string> notes_, unseen_;
};

struct CompareSuite {
  std::string_view name;
  std::string_view argument;  // name of the argument, "TASK"; "": none
  std::string_view summary;
  std::string_view paper;
  // Creates a run. `configs` must outlive it. Errors: user (the argument, or requirements of the suite), corrupt (a
  // file).
  Result<std::unique_ptr<SuiteRun>> (*begin)(std::span<const CompareConfig> configs, const SuiteInput& input) = nullptr;
};

const Registry<const CompareSuite*>& compare_suites();

// `text`: NAME or NAME:argument. Errors: user (unknown name; argument missing or not allowed), those of begin().
Result<std::unique_ptr<SuiteRun>> begin_suite(std::string_view text, std::span<const CompareConfig> configs,
                                              SuiteInput input);

}  // namespace millrace
