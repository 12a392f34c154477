#include "bench_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>
#include <numeric>

#include "base/memory_accounts.h"
#include "base/ordered_json.h"
#include "base/processor.h"
#include "base/version.h"
#include "memory_report.h"
#include "models/weight_parts_loader.h"
#include "models/weight_source.h"
#include "run/plan/memory_plan.h"

namespace millrace {
namespace {

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts));
}

struct Spread {
  double mean = 0, deviation = 0, median = 0;  // sample standard deviation: over n - 1
};

Spread spread(std::vector<double> values) {
  Spread out;
  const auto n = static_cast<double>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (double v : values) squares += (v - out.mean) * (v - out.mean);
  if (values.size() > 1) out.deviation = std::sqrt(squares / (n - 1));
  std::ranges::sort(values);
  out.median = (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
  return out;
}

struct Quartiles {
  double low = 0, median = 0, high = 0;
};

// All zero if there are no values.
Quartiles quartiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  auto at = [&](double part) {
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {at(0.25), at(0.5), at(0.75)};
}

int64_t stored_bytes(const ModelFiles& files) {
  int64_t bytes = 0;
  for (const auto& stored : files.tensors) bytes += stored.tensor.bytes;
  return bytes;
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return out;
}

// The format of most of the model's bytes; "": none.
std::string main_format(const ModelFiles& files) {
  std::map<std::string, int64_t> bytes;
  for (const auto& stored : files.tensors) {
    const Format* indices = nullptr;
    stored_weights(files, stored, &indices);
    if (indices)
      bytes[std::string(indices->name)] += stored.tensor.bytes;
    else if (stored.tensor.format)
      bytes[std::string(stored.tensor.format->name)] += stored.tensor.bytes;
  }
  std::string best;
  for (const auto& [format, size] : bytes)
    if (best.empty() || size > bytes[best]) best = format;
  return best;
}

std::string model_type(const LanguageModel& model) {
  const ModelInfo& info = model.info();
  const auto n = static_cast<double>(info.parameters);
  const std::string size = n >= 1e9   ? fmt::format("{:.1f}B", n / 1e9)
                           : n >= 1e6 ? fmt::format("{:.1f}M", n / 1e6)
                                      : fmt::format("{:.0f}K", n / 1e3);
  const std::string format = main_format(*model.parts().files);
  return fmt::format("{} {} {}", info.architecture, size, format.empty() ? "?" : upper(format));
}

std::string csv_field(const nlohmann::ordered_json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
  std::string out = "\"";
  for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

// The reads of a weight source, in all repetitions.
nlohmann::ordered_json disk_json(const BenchTest& test, const BenchResult& result, const BenchRoof& roof) {
  if (!result.disk) return nullptr;
  const WeightFigures& disk = *result.disk;
  const auto ratio = [](int64_t part, int64_t all) {
    return all > 0 ? nlohmann::ordered_json(static_cast<double>(part) / static_cast<double>(all))
                   : nlohmann::ordered_json();
  };
  const int64_t ns = std::accumulate(result.samples_ns.begin(), result.samples_ns.end(), int64_t{0});
  const double gb_per_s = static_cast<double>(disk.bytes_read) / static_cast<double>(ns);
  const auto of_roof = [&](double value) {
    return roof.disk_gb_per_s > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  return {{"io", disk.io},
          {"direct", disk.direct},
          {"depth", disk.depth},
          {"pages", disk.pages},
          {"bytes_per_token", ratio(disk.bytes_read, test.tokens() * std::ssize(result.samples_ns))},
          {"wasted_fraction", ratio(disk.wasted_bytes, disk.bytes_read)},
          {"gb_per_s", gb_per_s},
          {"roof_gb_per_s", of_roof(roof.disk_gb_per_s)},
          {"roof_fraction", of_roof(gb_per_s / roof.disk_gb_per_s)},
          {"busy_fraction", ratio(disk.read_ns, ns)},
          {"wait_fraction", ratio(disk.wait_ns, ns)},
          {"hit_ratio", ratio(disk.hits, disk.hits + disk.misses)},
          {"prefetch_accuracy", ratio(disk.prefetched_used, disk.prefetched)},
          {"neuron_fraction", ratio(disk.neurons_run, disk.neurons)},
          {"cold_fraction", disk.cold_experts > 0 ? ratio(disk.cold_experts, disk.experts) : nlohmann::ordered_json()},
          {"kept_bytes", disk.kept_bytes},
          {"cache_bytes", disk.cache_bytes}};
}

nlohmann::ordered_json weights_policy(const Model& model) {
  const WeightSource* const source = model.source();
  return source && !source->policy().text.empty() ? nlohmann::ordered_json(source->policy().text)
                                                  : nlohmann::ordered_json();
}

void print_disk(const nlohmann::ordered_json& disk) {
  const auto percent = [](const nlohmann::ordered_json& value) {
    return value.is_null() ? std::string("-") : fmt::format("{:.0f} %", 100 * value.get<double>());
  };
  const std::string roof = disk["roof_gb_per_s"].is_null()
                               ? std::string()
                               : fmt::format(", {} of the disk's {:.2f} GB/s", percent(disk["roof_fraction"]),
                                             disk["roof_gb_per_s"].get<double>());
  const std::string neurons = disk["neuron_fraction"].is_null()
                                  ? std::string()
                                  : fmt::format("; neurons computed {}, bytes wasted {}",
                                                percent(disk["neuron_fraction"]), percent(disk["wasted_fraction"]));
  const std::string cold = disk["cold_fraction"].is_null()
                               ? std::string()
                               : fmt::format("; cold experts {} of those run (lossy)", percent(disk["cold_fraction"]));
  const std::string pages = disk["pages"].get<std::string>();
  const std::string way = pages.empty()
                              ? std::string()
                              : fmt::format("; {} reads in flight, pages {}", disk["depth"].get<int64_t>(), pages);
  fmt::print("{:>26} weights: {} read a token at {:.2f} GB/s{}; hits {}, read ahead and used {}, waiting {}{}{}{}\n",
             "", format_bytes(std::llround(disk["bytes_per_token"].get<double>())), disk["gb_per_s"].get<double>(),
             roof, percent(disk["hit_ratio"]), percent(disk["prefetch_accuracy"]), percent(disk["wait_fraction"]),
             neurons, cold, way);
}

}  // namespace

void BenchRoof::raise_to(const BenchRoof& other) {
  gb_per_s = std::max(gb_per_s, other.gb_per_s);
  disk_gb_per_s = std::max(disk_gb_per_s, other.disk_gb_per_s);
  peaks.f32_gflop_per_s = std::max(peaks.f32_gflop_per_s, other.peaks.f32_gflop_per_s);
  peaks.bf16_gflop_per_s = std::max(peaks.bf16_gflop_per_s, other.peaks.bf16_gflop_per_s);
  peaks.int8_gop_per_s = std::max(peaks.int8_gop_per_s, other.peaks.int8_gop_per_s);
}

nlohmann::ordered_json machine_facts() {
  const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return {{"cpu_info", processor_name()}, {"cores", available_cores()}, {"memory_bytes", memory}};
}

std::string bench_name(const BenchTest& test) {
  std::string name;
  if (test.prompt > 0) name = fmt::format("pp{}", test.prompt);
  if (test.generate > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", test.generate);
  if (test.depth > 0) name += fmt::format(" @ d{}", test.depth);
  if (test.streams > 1) name += fmt::format(" x{}", test.streams);
  if (test.alike) name += " alike";
  if (test.kv_pool != "paged") name += " " + test.kv_pool;
  if (test.block_tokens != 16) name += fmt::format(" blocks {}", test.block_tokens);
  if (test.scatter) name += " scattered";
  if (!test.evictor.empty()) name += " " + test.evictor;
  if (test.shared > 0) name += fmt::format(" shared {}", test.shared);
  for (const std::string& kernel : test.kernels) name += " " + kernel;
  return name;
}

nlohmann::ordered_json bench_record(const LanguageModel& model, const BenchTest& test, const BenchResult& result,
                                    const BenchRoof& roof) {
  std::vector<double> ns, rate;
  for (int64_t sample : result.samples_ns) {
    ns.push_back(static_cast<double>(sample));
    rate.push_back(static_cast<double>(test.tokens()) * 1e9 / static_cast<double>(sample));
  }
  const Spread time = spread(ns), speed = spread(rate);
  const double gb_per_s = result.work.bytes / time.mean, gop_per_s = result.work.all_operations() / time.mean;
  double computing_ns = 0;
  for (Activation kind : kAllOf<Activation>) computing_ns += result.work.operations[kind] / roof.peaks.of(kind);
  const bool has_roof = roof.gb_per_s > 0 && roof.peaks.f32_gflop_per_s > 0;
  const auto of_roof = [&](double value) {  // null if the machine's limits were not measured
    return has_roof ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  const double bandwidth_fraction = has_roof ? gb_per_s / roof.gb_per_s : 0.0;
  const double compute_fraction = has_roof ? computing_ns / time.mean : 0.0;
  const Quartiles reads = quartiles(result.reads_gb_per_s), share = quartiles(result.read_fractions);
  const Quartiles turns = quartiles(result.times_first);
  const auto in_turns = [&](double value) {
    return result.times_first.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
  };
  const auto measured = [&](double value) {
    return test.beside ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  const auto& files = *model.parts().files;
  const auto machine = machine_facts();
  return {{"build_commit", kCommit},
          {"version", kVersion},
          {"build_number", 0},
          {"cpu_info", machine["cpu_info"]},
          {"cores", machine["cores"]},
          {"memory_bytes", machine["memory_bytes"]},
          {"gpu_info", ""},
          {"backends", "CPU"},
          {"isa", isa_name(model.parts().kernels.isa)},
          {"model_filename", files.path},
          {"model_type", model_type(model)},
          {"model_size", stored_bytes(files)},
          {"model_n_params", model.info().parameters},
          {"n_batch", test.batch_tokens},
          {"n_ubatch", test.batch_tokens},
          {"n_threads", test.threads},
          {"type_k", test.kv_format},
          {"type_v", test.kv_format},
          {"n_gpu_layers", 0},
          {"n_prompt", test.prompt},
          {"n_gen", test.generate},
          {"n_depth", test.depth},
          {"n_streams", test.streams},
          {"kv_pool", test.kv_pool},
          {"block_tokens", test.block_tokens},
          {"scattered", test.scatter},
          {"evictor", test.evictor},
          {"kernels", test.kernels},
          {"shared_prefix", test.shared},
          {"test_time", now_utc()},
          {"avg_ns", std::llround(time.mean)},
          {"stddev_ns", std::llround(time.deviation)},
          {"avg_ts", speed.mean},
          {"stddev_ts", speed.deviation},
          {"samples_ns", result.samples_ns},
          {"samples_ts", rate},
          {"median_ts", speed.median},
          {"times_first", in_turns(turns.median)},  // null unless in turns
          {"times_first_quartiles", {in_turns(turns.low), in_turns(turns.high)}},
          {"gb_per_s", gb_per_s},
          {"gop_per_s", gop_per_s},
          {"weight_bytes", model.info().weight_bytes},
          {"bandwidth_fraction", of_roof(bandwidth_fraction)},
          {"compute_fraction", of_roof(compute_fraction)},
          {"read_gb_per_s", measured(reads.median)},  // these three: null without --beside
          {"read_fraction", measured(share.median)},
          {"read_fraction_quartiles", {measured(share.low), measured(share.high)}},
          {"roof_fraction", of_roof(std::max(bandwidth_fraction, compute_fraction))},
          {"roof_gb_per_s", of_roof(roof.gb_per_s)},
          {"roof_f32_gflop_per_s", of_roof(roof.peaks.f32_gflop_per_s)},
          {"roof_bf16_gflop_per_s", of_roof(roof.peaks.bf16_gflop_per_s)},
          {"roof_int8_gop_per_s", of_roof(roof.peaks.int8_gop_per_s)},
          {"disk", disk_json(test, result, roof)},                   // null unless weights are read from the disk
          {"weights_policy", weights_policy(*model.parts().model)},  // null: the source has found none
          {"memory", memory_json(model.parts().accounts->budget(), memory_uses(*model.parts().accounts))}};
}

// Rows are printed as they are measured, so that widths are fixed. Narrow terminals lose what is the same in most rows
// first.
std::vector<TableColumn> bench_columns() {
  return {{.name = "model", .left = true, .drops = 8, .width = 24},
          {.name = "size", .drops = 1, .width = 10},
          {.name = "params", .drops = 2, .width = 8},
          {.name = "threads", .drops = 6, .width = 7},
          {.name = "type_k", .drops = 3, .width = 6},
          {.name = "test", .width = 20},
          {.name = "t/s", .width = 18},
          {.name = "GB/s", .drops = 5, .width = 7},
          {.name = "GOP/s", .drops = 4, .width = 8},
          {.name = "roof", .drops = 7, .width = 6}};
}

BenchPrinter::BenchPrinter(std::string output, TableRoom room)
    : output_(std::move(output)), room_(std::move(room)), table_(TableLook::markdown, bench_columns()) {}

void BenchPrinter::add(const BenchTest& test, const nlohmann::ordered_json& record) {
  const bool first = printed_++ == 0;
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;  // file names may be invalid UTF-8
  if (output_ == "jsonl") {
    fmt::print("{}\n", record.dump(-1, ' ', false, replace));
  } else if (output_ == "json") {
    fmt::print("{}  {}", first ? "[\n" : ",\n", record.dump(-1, ' ', false, replace));
  } else if (output_ == "csv") {
    std::string names, values;
    for (const auto& [key, value] : record.items()) {
      if (value.is_structured()) continue;  // samples are only in the JSON formats
      names += (names.empty() ? "" : ",") + key;
      values += (values.empty() ? "" : ",") + csv_field(value);
    }
    if (first) fmt::print("{}\n", names);
    fmt::print("{}\n", values);
  } else {
    if (first) fmt::print("{}", table_.head(room_));
    const bool has_roof = !record["roof_fraction"].is_null();
    fmt::print(
        "{}",
        table_.line(
            {record["model_type"].get<std::string>(),
             fmt::format("{:.2f} MiB", record["model_size"].get<double>() / 1048576.0),
             fmt::format("{:.2f} M", record["model_n_params"].get<double>() / 1e6), fmt::format("{}", test.threads),
             test.kv_format, bench_name(test),
             fmt::format("{:.2f} ± {:.2f}", record["avg_ts"].get<double>(), record["stddev_ts"].get<double>()),
             fmt::format("{:.2f}", record["gb_per_s"].get<double>()),
             fmt::format("{:.2f}", record["gop_per_s"].get<double>()),
             has_roof ? fmt::format("{:.0f} %", 100 * record["roof_fraction"].get<double>()) : std::string("-")}));
  }
  if (output_ == "md" && test.beside) {
    const auto& quartiles = record["read_fraction_quartiles"];
    fmt::print("{:>26} steps read at {:.1f} % (quartiles {:.1f} to {:.1f}) of the rate of plain reads, {:.1f} GB/s\n",
               "", 100 * record["read_fraction"].get<double>(), 100 * quartiles[0].get<double>(),
               100 * quartiles[1].get<double>(), record["read_gb_per_s"].get<double>());
  }
  if (output_ == "md" && !record["disk"].is_null()) print_disk(record["disk"]);
  if (output_ == "md" && !record["times_first"].is_null()) {
    const auto& quartiles = record["times_first_quartiles"];
    fmt::print("{:>26} {:.3f} times the speed of the first (quartiles {:.3f} to {:.3f})\n", "",
               record["times_first"].get<double>(), quartiles[0].get<double>(), quartiles[1].get<double>());
  }
  std::fflush(stdout);
}

void BenchPrinter::finish() {
  if (output_ == "md" && printed_ > 0) fmt::print("{}", table_.dropped_text(room_));
  if (output_ == "json") fmt::print("{}]\n", printed_ > 0 ? "\n" : "[");
  std::fflush(stdout);
}

}  // namespace millrace
