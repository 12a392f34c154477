#include "workload_flags.h"

#include <memory>

#include "durations.h"
#include "hub_model.h"
#include "run/language_model.h"
#include "text/tokenizer.h"
#include "workload/generate.h"

namespace millrace {

void WorkloadFlags::add_to(CLI::App* command, const std::string& path_flag) {
  command
      ->add_option(path_flag, path,
                   "Trace file, optionally compressed with xz, or gen:key=value,... for a synthetic load")
      ->required();
  command->add_option(
      "--format", format,
      "Trace format; default: detected from the content (see millrace techniques --family trace_format)");
  command->add_option("--limit", limit, "Use only the first N requests; 0: all")
      ->check(CLI::Range(int64_t{0}, kMaxTraceRequests));
  command->add_option("--scale", scale, "Speed up arrivals by this factor")->check(CLI::Range(1e-9, 1e9));
  command->add_option("--rate", rate, "Mean requests per second, instead of the trace's own")
      ->check(CLI::Range(0.0, 1e9));
  command->add_option("--arrivals", arrivals, "Draw new arrival times: poisson, gamma or uniform; requires --rate");
  command->add_option("--burstiness", burstiness, "Shape of gamma arrivals; below 1 is burstier than Poisson")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e3));
  command->add_option("--seed", seed, "Seed of the drawn arrival times")->capture_default_str();
  command->add_option("--max-prompt", max_prompt, "Truncate prompts to this many tokens; 0: do not");
  command->add_option("--max-output", max_output, "Truncate answers to this many tokens; 0: do not");
  command->add_option("--tokenizer", tokenizer,
                      "Model whose tokenizer encodes traces with text; default: four bytes per token");
}

void add_goodput_limits(CLI::App* command, GoodputLimits& limits) {
  const auto add = [&](const char* name, double& limit, const char* help) {
    command->add_option(name, limit, help)->transform(as_seconds())->check(CLI::Range(0.0, 1e9));
  };
  add("--good-ttft", limits.ttft, "Goodput: maximum time to first token");
  add("--good-tpot", limits.tpot, "Goodput: maximum mean time per further token");
  add("--good-e2e", limits.e2e, "Goodput: maximum time for the whole request");
}

Result<std::vector<WorkloadRequest>> WorkloadFlags::load() const {
  TraceOptions options;
  options.format = format;
  options.limit = limit;
  options.scale = scale;
  options.rate = arrivals.empty() ? rate : 0;
  std::shared_ptr<const Tokenizer> reader;
  if (!tokenizer.empty()) {
    MILLRACE_TRY(ModelFiles files, open_local_model(tokenizer));
    if (!files.tokenizer) return Error::unsupported(files.path + ": the model's files contain no tokenizer");
    MILLRACE_TRY(reader, Tokenizer::create(std::move(*files.tokenizer)));
    options.encode = [reader](std::string_view text) -> Result<std::vector<TokenId>> {
      return reader->encode(text, {true, true});
    };
  }
  MILLRACE_TRY(auto requests, load_workload(path, options));
  if (!arrivals.empty()) {
    ArrivalSpec spec;
    MILLRACE_TRY(spec.kind, find_arrival_kind(arrivals));
    if (rate <= 0) return Error::user("arrivals: --arrivals requires --rate");
    spec.rate = rate;
    spec.burstiness = burstiness;
    spec.seed = seed;
    draw_arrivals(requests, spec);
  }
  for (WorkloadRequest& request : requests) {
    if (max_prompt > 0) request.prompt_tokens = std::min(request.prompt_tokens, max_prompt);
    if (max_output > 0) request.output_tokens = std::min(request.output_tokens, max_output);
  }
  return requests;
}

}  // namespace millrace
