// The output of `millrace bench`: a Markdown table, CSV, JSON or JSON lines, with llama-bench's field names.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench_run.h"
#include "kernels/bandwidth.h"
#include "terminal/text_table.h"

namespace millrace {

// The limits of the machine with a test's threads, measured before and after it.
struct BenchRoof {
  double gb_per_s = 0;
  ComputePeaks peaks;
  double disk_gb_per_s = 0;  // rate of the disk with the weights; 0: not measured

  void raise_to(const BenchRoof& other);  // takes the maximum of each figure
};

// Processor, cores and memory.
nlohmann::ordered_json machine_facts();

// Machine and model, then the test, then its figures. bandwidth_fraction and compute_fraction are the times for reading
// and computing at the machine's limits divided by the measured time; roof_fraction is the larger of the two.
nlohmann::ordered_json bench_record(const LanguageModel& model, const BenchTest& test, const BenchResult& result,
                                    const BenchRoof& roof);

// "pp512", "tg128", "pp512+tg128 @ d4096 x8"
std::string bench_name(const BenchTest& test);

// The columns of the Markdown table.
std::vector<TableColumn> bench_columns();

// Prints records as they are added; `output` is md, csv, json or jsonl. `room`: for md.
class BenchPrinter {
 public:
  BenchPrinter(std::string output, TableRoom room);
  void add(const BenchTest& test, const nlohmann::ordered_json& record);
  void finish();

 private:
  std::string output_;
  TableRoom room_;
  TextTable table_;
  int64_t printed_ = 0;
};

}  // namespace millrace
