// millrace exactness: sends the same requests to a server in several ways and compares the answers bit for bit.
#include "exactness/exactness.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "base/ordered_json.h"
#include "command.h"
#include "compare/engines/process.h"
#include "durations.h"
#include "exactness/exactness_report.h"
#include "exactness/http_completions.h"
#include "input.h"
#include "interrupt.h"
#include "progress.h"
#include "running.h"
#include "table_room.h"

namespace millrace {
namespace {

constexpr const char* kExactnessExamples = R"(Examples:
  millrace exactness --url http://127.0.0.1:8080
  millrace exactness --url http://127.0.0.1:8000 --model Qwen/Qwen3-0.6B --api chat --rounds 4
  millrace exactness --url http://127.0.0.1:8000 --restart-command "systemctl restart vllm"
  millrace exactness --url http://127.0.0.1:11434 --model llama3 --json

Sends six requests to any server with OpenAI's API: alone; then without cached prefixes (if the server can), again, as a
stream, in batches, and after other load. Each answer must have the tokens, text and log-probabilities of the first one,
bit for bit. Prints a table, and the smallest example of each difference as commands to type. Takes about 65 requests if
nothing differs; the search for a smallest example may send several hundred more.

Exit status: 0 nothing differed; 7 answers differ; 1 requests failed; 5 the server is busy; 6 no connection; 130 stopped
by Ctrl-C.
The key is read from MILLRACE_API_KEY if --key is not given.)";

constexpr int kEnterPollMs = 200;

struct ExactnessFlags {
  HttpCompletionsOptions server{.url = "http://127.0.0.1:8080", .key = "", .model = "", .api = {}};
  ExactnessOptions check;
  std::string api = "auto", restart_command;
  double timeout = 120, restart_wait = 300;
  bool restart_pause = false, json = false, wide = false;
  CLI::Option* salt = nullptr;
};

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

Result<void> run_restart_command(const std::string& command) {
  MILLRACE_TRY(const ProcessOutput done, run_process({"/bin/sh", "-c", command}, [] { return !interrupted(); }));
  if (done.exit_code == 0) return {};
  return Error::user(fmt::format("--restart-command: exit status {}: {}", done.exit_code,
                                 done.errors.empty() ? done.output.substr(0, 400) : done.errors.substr(0, 400)));
}

Result<void> wait_for_enter() {
  fmt::print(stderr, "Restart the server now, then press Enter: ");
  for (;;) {
    if (interrupted()) return Error::cancelled("interrupted");
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, kEnterPollMs) <= 0) continue;
    char c = 0;
    const ssize_t got = ::read(STDIN_FILENO, &c, 1);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
      return Error::user("--restart-pause: standard input has ended; use --restart-command");
    if (got == 1 && c == '\n') return {};
  }
}

Result<void> restart_server(const ExactnessFlags& flags, const HttpCompletions& server) {
  if (flags.restart_pause)
    MILLRACE_TRY_VOID(wait_for_enter());
  else
    MILLRACE_TRY_VOID(run_restart_command(flags.restart_command));
  return server.wait_until_ready(milliseconds_of(flags.restart_wait), [] { return !interrupted(); });
}

void set_restart(const ExactnessFlags& flags, const HttpCompletions& server, ExactnessOptions& options) {
  if (flags.restart_command.empty() && !flags.restart_pause) return;
  options.restart = [&flags, &server]() -> Result<void> {
    auto restarted = restart_server(flags, server);
    if (interrupted()) return Error::cancelled("interrupted");  // Ctrl-C also ends the command with an error
    return restarted;
  };
}

// Returns the exit status. Errors: the error that ended the check, if nothing differed before.
Result<int> exit_status(const ExactnessResult& result) {
  if (result.different() > 0) return kAnswersDiffer;
  if (result.error) return *result.error;
  if (!result.complete) return 130;
  return result.failed() > 0 ? 1 : 0;
}

Result<int> check_server(ExactnessFlags flags) {
  flags.server.url = address_of(flags.server.url);
  if (flags.server.key.empty()) flags.server.key = api_key_of_environment();
  if (flags.api != "auto") {
    MILLRACE_TRY(flags.server.api, find_completion_api(flags.api));
  }
  flags.server.call_limit = milliseconds_of(flags.timeout);
  if (flags.salt->count() == 0)
    flags.check.sizes.salt = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  MILLRACE_TRY(const auto server, HttpCompletions::connect(flags.server));
  catch_interrupts();
  set_restart(flags, *server, flags.check);
  Result<ExactnessResult> result = Error::internal("");
  {
    ProgressBar bar("exactness");
    flags.check.progress = [&](double fraction, const std::string& way) {
      bar.update(fraction, way);
      return !interrupted();
    };
    result = check_exactness(*server, flags.check);
  }
  if (!result.ok()) return interrupted() ? Result<int>(130) : Result<int>(result.error());
  result->notes.insert(result->notes.begin(), server->notes().begin(), server->notes().end());
  const CheckedServer checked{server->address(), server->style(), !flags.server.key.empty()};
  if (flags.json) {
    nlohmann::ordered_json json = exactness_json(*result, checked);
    json["salt"] = flags.check.sizes.salt;
    print_json_line(json);
  } else {
    fmt::print("{}{}",
               fmt::format("{}{}, model {}, --salt {}\n\n", checked.address, completion_path(checked.style.api),
                           checked.style.model.empty() ? "(not named)" : checked.style.model, flags.check.sizes.salt),
               exactness_table(*result, checked, table_room(flags.wide, "--json")));
  }
  return exit_status(*result);
}

}  // namespace

void add_exactness_command(CLI::App& app) {
  auto flags = std::make_shared<ExactnessFlags>();
  CLI::App* command =
      add_command(app, "exactness", "Check that a server gives the same request the same answer, bit for bit",
                  kExactnessExamples, [flags] { return check_server(*flags); });
  command->add_option("--url", flags->server.url, "A server with OpenAI's API: http[s]://HOST:PORT")
      ->capture_default_str();
  command->add_option("--key", flags->server.key, "API key of the server; default: MILLRACE_API_KEY");
  command->add_option("-m,--model", flags->server.model, "A model of the server; default: the first one that it lists");
  command->add_option("--api", flags->api, "completions, chat, or auto: completions if the server has them")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "completions", "chat"}));
  command->add_option("-n,--tokens", flags->check.sizes.max_tokens, "Tokens of an answer")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  command
      ->add_option("--words", flags->check.sizes.long_words, "Words of the long prompts; halved if the server refuses")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{8}, int64_t{100000}));
  command->add_option("--batch", flags->check.batch, "Requests in flight at once")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{64}));
  command->add_option("--rounds", flags->check.rounds, "Rounds of batches, each with other neighbours")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1000}));
  flags->salt = command->add_option("--salt", flags->check.sizes.salt,
                                    "Number that the prompts are drawn from; default: another one each time");
  auto* restart = command->add_option("--restart-command", flags->restart_command,
                                      "Shell command that restarts the server; then compare once more");
  command->add_flag("--restart-pause", flags->restart_pause, "Ask the user to restart the server")->excludes(restart);
  command->add_option("--restart-wait", flags->restart_wait, "How long a restarted server may take to become ready")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(CLI::Range(1.0, 86400.0));
  command->add_option("--timeout", flags->timeout, "How long one request may take")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(CLI::Range(0.1, 86400.0));
  command->add_flag("--json", flags->json, "Print the result as JSON, with the requests, first answers and examples");
  add_wide_to(command, &flags->wide, "ways whose answers are all the same, the last one first");
}

}  // namespace millrace
