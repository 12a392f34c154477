// http_overhead: the cost of the server. One engine serves the same load in two ways, alternately and in one process,
// so that noise of the machine and the placement of a process's pages and threads do not count as server overhead:
//
//   A   submitted to the engine; tokens go to a callback       Engine::submit(request, sink)
//   B   requested over HTTP on loopback, as event streams      millrace serve + millrace replay --url
//
// Tokens per second are measured while all streams run: from the first token of the last stream to the last token of
// the first one. Prints medians over the rounds of tokens per second, of the ratio B / A, and of CPU time per token: of
// A, of B's server including its engine, and of the load generator, which runs on the same cores. If all cores are
// busy, B / A cannot exceed A / (A + generator) in CPU time.
//
//   http_overhead -m model.gguf -t 2 --rounds 10 --seconds 1
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "run/language_model.h"
#include "server/server.h"
#include "server/telemetry/telemetry.h"
#include "workload/remote/http_load.h"

namespace millrace {
namespace {

struct Flags {
  std::string model, api = "completions", lock;
  int threads = 2, io_threads = 2;
  int64_t streams = 16, prompt = 16, tokens = 0, context = 1024;
  int rounds = 10, locked_rounds = 4;
  double seconds = 1;
  bool head = false;
};

double cpu_seconds(int who) {
  rusage used{};
  getrusage(who, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct Run {
  double tokens_per_second = 0;
  double cpu_per_token = 0;  // seconds; of all threads but the generator's
  double generator_per_token = 0;
};

class Comparison {
 public:
  Comparison(const Flags& flags, std::unique_ptr<Server> server, int64_t vocab)
      : flags_(flags), server_(std::move(server)), vocab_(vocab) {}

  // One request per stream, each with `tokens` output tokens.
  void set_length(int64_t tokens) {
    load_.assign(static_cast<size_t>(flags_.streams), {});
    for (size_t i = 0; i < load_.size(); ++i) {
      load_[i].id = i;
      load_[i].prompt_tokens = flags_.prompt;
      load_[i].output_tokens = tokens;
    }
  }

  Result<Run> in_process() {
    return measured([&]() -> Result<std::vector<RequestRecord>> {
      std::mutex mutex;
      std::condition_variable ended;
      std::vector<RequestRecord> records(load_.size());
      int64_t open = 0;
      Result<void> refused;
      const auto began = std::chrono::steady_clock::now();
      for (const WorkloadRequest& wanted : load_) {
        Request request;
        request.prompt = make_prompt(wanted, vocab_);
        request.max_tokens = wanted.output_tokens;
        request.ignore_eos = true;
        request.sampling.temperature = 0;
        {
          std::lock_guard lock(mutex);
          ++open;
        }
        auto id = server_->service().engine().submit(std::move(request), [&, index = wanted.id](TokenEvent&& event) {
          std::lock_guard lock(mutex);
          if (event.token >= 0)
            records[index].tokens.push_back(
                std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
          if (event.last && --open == 0) ended.notify_one();
        });
        if (id.ok()) continue;
        std::lock_guard lock(mutex);
        --open;
        refused = id.error();
      }
      std::unique_lock lock(mutex);
      ended.wait(lock, [&] { return open == 0; });
      if (!refused.ok()) return refused.error();
      return records;
    });
  }

  Result<Run> over_http() {
    MILLRACE_TRY(const Url url, Url::parse(fmt::format("http://127.0.0.1:{}", server_->port())));
    HttpLoadOptions options;
    MILLRACE_TRY(options.style.api, find_completion_api(flags_.api));
    options.style.vocab = vocab_;
    options.closed_loop = flags_.streams;
    return measured([&] { return run_http_load(url, load_, options, [](int64_t, int64_t) { return true; }); });
  }

 private:
  template <typename Work>
  Result<Run> measured(Work work) {
    const double all = cpu_seconds(RUSAGE_SELF), own = cpu_seconds(RUSAGE_THREAD);
    MILLRACE_TRY(const std::vector<RequestRecord> records, work());
    double from = 0, to = 1e30, all_run = 0, count = 0;
    for (const RequestRecord& record : records) {
      if (!record.ok()) return Error::internal("a request failed: " + record.error);
      from = std::max(from, record.tokens.front());
      to = std::min(to, record.tokens.back());
      count += static_cast<double>(record.tokens.size());
    }
    if (to <= from) return Error::user("the answers are too short: the streams never all run at the same time");
    for (const RequestRecord& record : records)
      all_run +=
          static_cast<double>(std::ranges::count_if(record.tokens, [&](double at) { return at > from && at <= to; }));
    Run run;
    run.tokens_per_second = all_run / (to - from);
    run.generator_per_token = (cpu_seconds(RUSAGE_THREAD) - own) / count;
    run.cpu_per_token = (cpu_seconds(RUSAGE_SELF) - all) / count - run.generator_per_token;
    return run;
  }

  const Flags& flags_;
  std::unique_ptr<Server> server_;
  int64_t vocab_;
  std::vector<WorkloadRequest> load_;
};

// A file lock held while rounds run, for machines shared with other measurements; no-op without a path.
class Turn {
 public:
  explicit Turn(const std::string& path) : file_(path.empty() ? -1 : ::open(path.c_str(), O_RDWR | O_CREAT, 0666)) {
    if (file_ >= 0) ::flock(file_, LOCK_EX);
  }
  ~Turn() {
    if (file_ >= 0) ::close(file_);
  }
  Turn(const Turn&) = delete;

 private:
  int file_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

template <typename Of>
double median_of(const std::vector<std::pair<Run, Run>>& rounds, Of of) {
  std::vector<double> values;
  for (const auto& [a, b] : rounds) values.push_back(of(a, b));
  return median(std::move(values));
}

void print(const Flags& flags, const std::vector<std::pair<Run, Run>>& rounds) {
  std::vector<double> ratios;
  for (const auto& [a, b] : rounds) ratios.push_back(b.tokens_per_second / a.tokens_per_second);
  std::ranges::sort(ratios);
  const double own = median_of(rounds, [](const Run& a, const Run&) { return a.cpu_per_token * 1e6; });
  const double server = median_of(rounds, [](const Run&, const Run& b) { return b.cpu_per_token * 1e6; });
  const double generator = median_of(rounds, [](const Run&, const Run& b) { return b.generator_per_token * 1e6; });
  if (flags.head)
    fmt::print(
        "| model | threads | in process t/s | HTTP t/s | ratio | quarter to quarter | CPU us/token: in process | "
        "server | generator |\n|---|--:|--:|--:|--:|---|--:|--:|--:|\n");
  fmt::print("| {} | {} | {:.0f} | {:.0f} | {:.1f} % | {:.1f} to {:.1f} % | {:.1f} | {:.1f} | {:.1f} |\n",
             flags.model.empty() ? "built-in" : std::filesystem::path(flags.model).stem().string(), flags.threads,
             median_of(rounds, [](const Run& a, const Run&) { return a.tokens_per_second; }),
             median_of(rounds, [](const Run&, const Run& b) { return b.tokens_per_second; }), 100 * median(ratios),
             100 * ratios[ratios.size() / 4], 100 * ratios[ratios.size() * 3 / 4], own, server, generator);
}

Result<void> run(const Flags& flags) {
  LoadOptions load;
  load.threads = flags.threads;
  MILLRACE_TRY(const auto model, LanguageModel::load(flags.model, load));
  ServiceOptions service;
  service.names = {"model"};
  service.engine.threads = flags.threads;
  service.engine.context = flags.context;
  service.engine.max_streams = flags.streams;
  service.engine.prefix_cache = false;                                  // every round computes its prompts
  MILLRACE_TRY(service.telemetry, Telemetry::create({}, "model", {}));  // one log line per request, as in the server
  MILLRACE_TRY(auto engine, Engine::create(model, service.engine));
  HttpLimits http;
  http.port = 0;
  http.io_threads = flags.io_threads;
  MILLRACE_TRY(auto server, Server::start(model, std::move(engine), std::move(service), http));
  Comparison comparison(flags, std::move(server), model->info().vocab);
  int64_t tokens = flags.tokens;
  if (tokens == 0) {
    Turn turn(flags.lock);
    comparison.set_length(64);
    MILLRACE_TRY_VOID(comparison.in_process());
    MILLRACE_TRY(const Run trial, comparison.over_http());
    tokens = static_cast<int64_t>(flags.seconds * trial.tokens_per_second) / flags.streams;
  }
  comparison.set_length(std::clamp<int64_t>(tokens, 2, flags.context - flags.prompt - 1));
  std::vector<std::pair<Run, Run>> rounds;
  while (std::ssize(rounds) < flags.rounds) {
    Turn turn(flags.lock);
    MILLRACE_TRY_VOID(comparison.in_process());  // warm the caches again
    for (int i = 0; i < flags.locked_rounds && std::ssize(rounds) < flags.rounds; ++i) {
      const bool http_first = rounds.size() % 2 == 1;
      Run b;
      if (http_first) {
        MILLRACE_TRY(b, comparison.over_http());
      }
      MILLRACE_TRY(const Run a, comparison.in_process());
      if (!http_first) {
        MILLRACE_TRY(b, comparison.over_http());
      }
      rounds.emplace_back(a, b);
    }
  }
  print(flags, rounds);
  return {};
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Flags flags;
  CLI::App app("Measures the cost of serving over HTTP, compared with the engine alone");
  app.add_option("-m,--model", flags.model, "Model file; default: the embedded model");
  app.add_option("-t,--threads", flags.threads, "Engine threads")->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--io-threads", flags.io_threads, "I/O threads of the server")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--streams", flags.streams, "Concurrent streams")->capture_default_str()->check(CLI::Range(1, 65536));
  app.add_option("--prompt", flags.prompt, "Tokens per prompt")->capture_default_str()->check(CLI::Range(1, 100000));
  app.add_option("--tokens", flags.tokens, "Tokens per answer; 0: as many as take about --seconds")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  app.add_option("-c,--context", flags.context, "Context length of a stream")
      ->capture_default_str()
      ->check(CLI::Range(64, 1000000));
  app.add_option("--seconds", flags.seconds, "Length of one run")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 3600.0));
  app.add_option("--rounds", flags.rounds, "Pairs of runs")->capture_default_str()->check(CLI::Range(1, 10000));
  app.add_option("--locked-rounds", flags.locked_rounds, "Rounds per acquisition of --lock")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  app.add_option("--api", flags.api, "completions, chat or llama")->capture_default_str();
  app.add_option("--lock", flags.lock, "File to lock while rounds run");
  app.add_flag("--head", flags.head, "Print the table header");
  CLI11_PARSE(app, argc, argv);
  if (auto done = millrace::run(flags); !done.ok()) {
    fmt::print(stderr, "http_overhead: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
