// The picture of `millrace bench`: the speed of each test as a bar, with the limit of the machine.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench_run.h"
#include "picture/chart.h"

namespace millrace {

class BenchPicture {
 public:
  // `record`: of bench_record().
  void add(const BenchTest& test, const nlohmann::ordered_json& record);
  // Returns a panel for prompts, one for generation and one for both together, of the tests that were added.
  Chart chart() const;

 private:
  struct Bar {
    BenchTest test;
    double speed, deviation, limit;  // tokens/s; limit: NaN: not measured
  };

  ChartPanel panel(const std::string& title, bool prompt, bool generate) const;
  std::string category(const BenchTest& test) const;

  std::string model_, machine_;
  std::vector<Bar> bars_;
};

}  // namespace millrace
