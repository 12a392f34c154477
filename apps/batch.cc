// millrace batch: answers a file of requests without a server.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <unordered_set>

#include "command.h"
#include "interrupt.h"
#include "model_flags.h"
#include "server/batch/line_runner.h"
#include "server/service.h"
#include "tensor/mapped_file.h"

namespace millrace {
namespace {

constexpr const char* kBatchExamples = R"(Examples:
  millrace batch -m model.gguf -i requests.jsonl -o results.jsonl
  millrace batch -m model.gguf -i requests.jsonl -o results.jsonl --resume     continue an interrupted run

Each line of the input is {"custom_id": "1", "url": "/v1/completions", "body": {"prompt": "..."}}, as in OpenAI's
batch API. Each line of the output has a custom_id and its response, in the order in which the requests finish.)";

struct BatchFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  std::string input, output;
  int64_t in_flight = 0;
  bool resume = false;
};

std::string_view text_in(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Calls take(line, number) for every non-empty line.
template <typename Take>
void for_lines(std::string_view text, const Take& take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) take(line, number);
  }
}

// Checks every line before the model is loaded.
Result<std::vector<std::string_view>> good_lines(const BatchFlags& flags, std::string_view text) {
  std::vector<std::string_view> lines;
  std::unordered_set<std::string> ids;
  Result<void> good;
  for_lines(text, [&](std::string_view line, int64_t number) {
    if (!good.ok()) return;
    const auto parsed = parse_batch_line(line);
    if (!parsed.ok())
      good = Error::user(fmt::format("{}: line {}: {}", flags.input, number, parsed.error().message));
    else if (!ids.insert(parsed->custom_id).second)
      good = Error::user(fmt::format("{}: line {}: duplicate custom_id '{}'", flags.input, number, parsed->custom_id));
    else
      lines.push_back(line);
  });
  if (!good.ok()) return good.error();
  return lines;
}

// The custom_ids that an earlier run has answered; truncates an incomplete last line.
std::unordered_set<std::string> finished_before(const std::string& path) {
  std::unordered_set<std::string> out;
  std::error_code error;
  if (!std::filesystem::exists(path, error) || std::filesystem::file_size(path, error) == 0) return out;
  auto file = MappedFile::open(path);
  if (!file.ok()) return out;
  const std::string_view text = text_in(**file);
  const size_t whole = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
  for_lines(text.substr(0, whole), [&](std::string_view line, int64_t) {
    if (auto done = parse_result_line(line)) out.insert(std::move(done->custom_id));
  });
  if (whole < text.size()) std::filesystem::resize_file(path, whole, error);
  return out;
}

Result<int> batch(const BatchFlags& flags) {
  MILLRACE_TRY(const auto file, MappedFile::open(flags.input));
  MILLRACE_TRY(const auto lines, good_lines(flags, text_in(*file)));
  std::unordered_set<std::string> finished;
  if (flags.resume) finished = finished_before(flags.output);
  std::ofstream output(flags.output, std::ios::binary | (flags.resume ? std::ios::app : std::ios::trunc));
  if (!output) return Error::user(fmt::format("{}: cannot be written", flags.output));

  MILLRACE_TRY(auto model, flags.model.load(&flags.engine.use));
  ServiceOptions options;
  MILLRACE_TRY(options.sampling, flags.sampling.get(*model, flags.engine.use));
  options.seed_given = std::ranges::any_of(flags.sampling.set, [](const auto& one) { return one.first == "seed"; });
  options.names = {model->info().name};
  options.any_name = true;
  MILLRACE_TRY(options.engine, flags.engine.get(flags.model));
  MILLRACE_TRY(auto engine, Engine::create(model, options.engine));
  Service service(model, std::move(engine), options);

  size_t at = 0;
  int64_t good = 0, failed = 0;
  const auto next = [&]() -> std::optional<BatchLine> {
    while (at < lines.size()) {
      auto line = parse_batch_line(lines[at++]);
      if (line.ok() && !finished.contains(line->custom_id)) return std::move(*line);
    }
    return std::nullopt;
  };
  const auto done = [&](const LineResult& result) -> Result<void> {
    ++(result.status == 200 ? good : failed);
    output << result_line(result) << '\n' << std::flush;
    if (!output) return Error::resource(fmt::format("{}: cannot be written", flags.output));
    return {};
  };
  const auto in_flight = static_cast<int>(flags.in_flight > 0 ? flags.in_flight : options.engine.max_streams);
  const std::atomic<bool> never{false};
  auto ran = LineRunner(service, in_flight).run(next, done, never);
  service.stop_engine();
  if (!ran.ok()) return ran.error();
  fmt::print(stderr, "{} answered, {} failed", good, failed);
  if (!finished.empty()) fmt::print(stderr, ", {} skipped (already answered)", finished.size());
  fmt::print(stderr, "\n");
  return failed > 0 ? 1 : 0;
}

}  // namespace

void add_batch_command(CLI::App& app) {
  auto flags = std::make_shared<BatchFlags>();
  CLI::App* command =
      add_command(app, "batch", "Answer a file of requests", kBatchExamples, [=] { return batch(*flags); });
  flags->model.add_to(command);
  command->add_option("-i,--input", flags->input, "Input file with one request per line")->required();
  command->add_option("-o,--output", flags->output, "Output file with one answer per line")->required();
  command->add_flag("--resume", flags->resume, "Append to the output file and skip the requests it already answers");
  command->add_option("--in-flight", flags->in_flight, "Concurrent requests; default: --max-streams")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  command->add_option("--max-streams", flags->engine.options.max_streams, "Concurrently running streams")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  flags->engine.add_to(command);
  flags->sampling.add_to(command);
}

}  // namespace millrace
