// millrace serve: the engine behind HTTP.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <fstream>

#include "command.h"
#include "engine/language_model.h"
#include "model_flags.h"
#include "server/api_docs.h"
#include "server/server.h"

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace serve                                        the built-in model at http://127.0.0.1:8080
  millrace serve -m model.gguf --alias gpt-4o --port 9000
  millrace serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt
  curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'

The first SIGTERM or Ctrl-C takes no new work and lets streams finish; the second one stops at once.)";

struct ServeFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  HttpLimits http;
  ServiceOptions service;
  TelemetryOptions telemetry;
  std::string name, key_file;
  std::vector<std::string> aliases;
  bool allow_public = false, api_docs = false;
  double drain_seconds = 30;
};

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Result<std::vector<std::string>> read_keys(const ServeFlags& flags) {
  std::vector<std::string> keys = flags.service.api_keys;
  if (!flags.key_file.empty()) {
    std::ifstream file(flags.key_file);
    if (!file) return Error::user(fmt::format("{}: cannot be read", flags.key_file));
    for (std::string line; std::getline(file, line);)
      if (!line.empty() && line[0] != '#') keys.push_back(line);
    if (keys.empty()) return Error::user(fmt::format("{}: holds no key; one a line", flags.key_file));
  }
  for (const std::string& key : keys)
    if (key.empty() || key.size() > 1024) return Error::user("API key: must have 1 to 1024 characters");
  return keys;
}

// Blocks the signals in every thread that is made from now on, so that this one can wait for them.
sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

bool signal_within(const sigset_t& set, double seconds) {
  timespec wait{static_cast<time_t>(seconds), static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  return sigtimedwait(&set, nullptr, &wait) > 0;
}

// Until the last answer is written, a second signal comes, or the limit is over.
void wait_for_drain(Server& server, const sigset_t& signals, double limit) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit);
  while (!server.drained() && std::chrono::steady_clock::now() < until)
    if (signal_within(signals, 0.05)) return;
}

void add_telemetry_flags(CLI::App* command, TelemetryOptions& telemetry) {
  command->add_option("--log-format", telemetry.log.format, "Of the log on stderr, a line for each request: text, or json")->capture_default_str()->check(CLI::IsMember({"text", "json"}));
  command->add_option("--log-level", telemetry.log.level, "Least level that is logged: debug, info, warn (requests that failed), error, off")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}));
  command->add_flag("--log-prompts", telemetry.log.prompts, "Prompts too");
  command->add_option("--otlp-endpoint", telemetry.otlp_endpoint, "Send spans as OTLP over HTTP with JSON, as in http://localhost:4318/v1/traces");
  command->add_option("--record", telemetry.record, "Write requests and digests of their answers to this file; `millrace replay --recording` asks again and compares");
  command->add_flag("--record-prompts", telemetry.record_prompts, "... with prompts and answers, without which nothing can be compared");
}

Result<int> serve(ServeFlags flags) {
  if (flags.api_docs) {
    fmt::print("{}", api_markdown());
    return 0;
  }
  MILLRACE_TRY(flags.service.api_keys, read_keys(flags));
  if (!is_loopback(flags.http.host) && flags.service.api_keys.empty() && !flags.allow_public)
    return Error::user(fmt::format("host {}: others could use this server; give --api-key or --api-key-file, or say --allow-public", flags.http.host));
  flags.service.local_only = is_loopback(flags.http.host) && flags.service.api_keys.empty() && !flags.allow_public;
  const sigset_t signals = block_signals();
  MILLRACE_TRY(auto model, flags.model.load());
  if (auto text = model->encode("a"); !text.ok()) return text.error();
  MILLRACE_TRY(flags.service.sampling, flags.sampling.get(*model));
  for (const auto& [name, value] : flags.sampling.set) flags.service.seed_given |= name == "seed";
  flags.service.names = {flags.name.empty() ? model->info().name : flags.name};
  for (const std::string& alias : flags.aliases) {
    if (alias == "*") flags.service.any_name = true;
    if (alias != "*") flags.service.names.push_back(alias);
  }
  flags.service.engine = flags.engine.get(flags.model);
  flags.telemetry.version = MILLRACE_VERSION;
  MILLRACE_TRY(flags.service.telemetry, Telemetry::create(flags.telemetry, flags.service.names.front(),
                                                          {flags.service.names.front(), std::string(isa_name(model->parts().kernels.isa)), flags.service.engine.kv_format, flags.telemetry.record_prompts}));
  MILLRACE_TRY(auto engine, Engine::create(model, flags.service.engine));
  MILLRACE_TRY(auto server, Server::start(model, std::move(engine), flags.service, flags.http));
  const std::string host = flags.http.host.find(':') == std::string::npos ? flags.http.host : "[" + flags.http.host + "]";
  fmt::print("millrace: {} at http://{}:{}\n", flags.service.names.front(), host, server->port());
  fmt::print("Open http://{}:{}/ in a browser, or chat in the terminal: millrace chat{}\n", host, server->port(), flags.model.path.empty() ? "" : " -m " + flags.model.path);
  std::fflush(stdout);
  RequestLog& log = flags.service.telemetry->log();
  log.event(LogLevel::info, "serving", {{"model", flags.service.names.front()}, {"host", flags.http.host}, {"port", server->port()}, {"version", MILLRACE_VERSION}});
  int which = 0;
  sigwait(&signals, &which);
  log.event(LogLevel::info, "draining", {{"signal", which}, {"limit_seconds", flags.drain_seconds}});
  server->drain();
  wait_for_drain(*server, signals, flags.drain_seconds);
  log.event(LogLevel::info, "stopped", {{"connections_cut", server->counts().connections}});
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = add_command(app, "serve", "Serve a model over HTTP", kExamples, [=] { return serve(*flags); });
  flags->model.add_to(command);
  HttpLimits& http = flags->http;
  ServiceOptions& service = flags->service;
  const auto whole = [](int64_t least, int64_t most) { return CLI::Range(least, most); };
  const auto seconds = [](double least) { return CLI::Range(least, 1e6); };
  command->add_option("--host", http.host, "Address to listen at")->capture_default_str();
  command->add_option("--port", http.port, "Port; 0: any that is free")->capture_default_str()->check(CLI::Range(0, 65535));
  command->add_option("--name", flags->name, "The model's name in answers; its own when absent");
  command->add_option("--alias", flags->aliases, "Further name that requests may use; '*': any name. May be given several times");
  command->add_option("--api-key", service.api_keys, "Key that requests must bring; may be given several times");
  command->add_option("--api-key-file", flags->key_file, "File with such keys, one a line");
  command->add_flag("--allow-public", flags->allow_public, "Whoever reaches the address may ask without a key, under any host name");
  command->add_flag("--api-docs", flags->api_docs, "Print what requests may hold, and leave");
  command->add_option("--cors-origin", service.origins, "Web pages that may ask from a browser, as https://name; '*': any. May be given several times");
  command->add_option("--max-streams", flags->engine.options.max_streams, "Streams that run at once; more wait")->capture_default_str()->check(whole(1, 65536));
  command->add_option("--queue", flags->engine.options.queue, "Streams that wait at most; more are refused with 429")->capture_default_str()->check(whole(0, 1 << 24));
  command->add_option("--request-timeout", service.timeout_seconds, "Seconds after which an answer ends as it is; 0: none")->check(seconds(0));
  command->add_option("--metrics-alias", service.metrics_alias, "Metrics under another server's names too: vllm, llamacpp")->check(CLI::IsMember({"vllm", "llamacpp"}));
  add_telemetry_flags(command, flags->telemetry);
  command->add_option("--max-body-bytes", http.body_bytes, "Of a request")->capture_default_str()->check(whole(1024, int64_t{1} << 30));
  command->add_option("--max-header-bytes", http.header_bytes, "Of a request")->capture_default_str()->check(whole(1024, 1 << 20));
  command->add_option("--max-connections", http.connections, "Open at once")->capture_default_str()->check(whole(1, 1 << 20));
  command->add_option("--max-queued-bytes", http.queued_bytes, "Of a stream whose reader is slow, before it is cut")->capture_default_str()->check(whole(4096, 1 << 30));
  command->add_option("--read-timeout", http.read_seconds, "Seconds for a request to come in whole")->capture_default_str()->check(seconds(0.1));
  command->add_option("--idle-timeout", http.idle_seconds, "Seconds between the requests of a connection")->capture_default_str()->check(seconds(0.1));
  command->add_option("--stall-timeout", http.stall_seconds, "Seconds without a byte taken by the reader of an answer")->capture_default_str()->check(seconds(0.1));
  command->add_option("--ping-seconds", http.ping_seconds, "A stream that is silent so long gets a comment, so that nothing between closes it")->capture_default_str()->check(seconds(0.1));
  command->add_option("--drain-timeout", flags->drain_seconds, "Seconds that streams have to finish after SIGTERM")->capture_default_str()->check(seconds(0));
  command->add_option("--io-threads", http.io_threads, "Threads for sockets")->capture_default_str()->check(CLI::Range(1, 64));
  flags->engine.add_to(command);
  flags->sampling.add_to(command);
}

}  // namespace millrace
