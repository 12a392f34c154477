// Linked into each test program of a mutated tree. Reads MILLRACE_MUTANT; if it is "record", writes a line per test
// case to MILLRACE_MUTANT_LOG: name, CPU seconds, result, and the mutants it reached. Mutants reached by a suite's
// set-up count for all of its cases.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <vector>

#include "mutant.h"

namespace {

double seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Recorder final : public testing::EmptyTestEventListener {
  void OnTestSuiteStart(const testing::TestSuite&) override {
    std::memset(mutant::reached, 0, sizeof(mutant::reached));
    begin_ = seconds();
    first_ = true;
  }
  void OnTestStart(const testing::TestInfo&) override {
    if (first_)
      suite_.assign(mutant::reached, mutant::reached + mutant::kMaxMutants);
    else
      begin_ = seconds();
    first_ = false;
    std::memcpy(mutant::reached, suite_.data(), suite_.size());
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    std::FILE* file = std::fopen(std::getenv("MILLRACE_MUTANT_LOG"), "a");
    if (!file) return;
    std::fprintf(file, "%s.%s\t%.6f\t%s\t", test.test_suite_name(), test.name(), seconds() - begin_,
                 test.result()->Failed()    ? "failed"
                 : test.result()->Skipped() ? "skipped"
                                            : "passed");
    for (int id = 0; id < mutant::kMaxMutants; ++id)
      if (mutant::reached[id]) std::fprintf(file, "%d ", id);
    std::fputc('\n', file);
    std::fclose(file);
  }

  std::vector<unsigned char> suite_;
  double begin_ = 0;
  bool first_ = true;
};

const bool started = [] {
  const char* which = std::getenv("MILLRACE_MUTANT");
  if (!which) return false;
  mutant::alive = std::strcmp(which, "record") == 0 ? -1 : std::atoi(which);
  if (mutant::alive < 0) testing::UnitTest::GetInstance()->listeners().Append(new Recorder);
  return true;
}();

}  // namespace
