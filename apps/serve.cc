// millrace serve: the engine behind HTTP.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "base/memory_accounts.h"
#include "command.h"
#include "model_flags.h"
#include "parse_again.h"
#include "run/language_model.h"
#include "serve_models.h"
#include "serve_signals.h"
#include "server/api/api_docs.h"
#include "server/server.h"

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace serve                                        the built-in model at http://127.0.0.1:8080
  millrace serve -m model.gguf --alias gpt-4o --port 9000
  millrace serve -m fast=small.gguf -m good=large.gguf --memory 20G --idle-unload 600
  millrace serve --models-dir ~/models                  each loaded when a request first asks for it
  millrace serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt
  curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'

The first SIGTERM or Ctrl-C takes no new work and lets streams finish; the second one stops at once.
SIGHUP has it read its config file, keys and certificates again, for all that can change while it runs.)";

struct ServeFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  HttpLimits http;
  ServiceOptions service;
  TelemetryOptions telemetry;
  ServeModels models;
  std::string key_file, template_file, constraint_memory, keys_path, tls_cert, tls_key;
  bool allow_public = false, api_docs = false;
  double drain_seconds = 30;

  bool keyless() const { return service.api_keys.empty() && service.keys.empty(); }
  // Null: without TLS.
  Result<std::shared_ptr<const TlsContext>> load_tls() const {
    if (tls_cert.empty() != tls_key.empty()) return Error::user("--tls-cert: goes with --tls-key");
    if (tls_cert.empty()) return std::shared_ptr<const TlsContext>();
    return TlsContext::load(tls_cert, tls_key);
  }
};

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// Those of the files, too.
Result<void> read_keys(ServeFlags& flags) {
  std::vector<std::string>& keys = flags.service.api_keys;
  if (!flags.key_file.empty()) {
    std::ifstream file(flags.key_file);
    if (!file) return Error::user(fmt::format("{}: cannot be read", flags.key_file));
    const size_t before = keys.size();
    for (std::string line; std::getline(file, line);)
      if (!line.empty() && line[0] != '#') keys.push_back(line);
    if (keys.size() == before) return Error::user(fmt::format("{}: holds no key; one a line", flags.key_file));
  }
  for (const std::string& key : keys)
    if (key.empty() || key.size() > 1024) return Error::user("API key: must have 1 to 1024 characters");
  if (flags.keys_path.empty()) return {};
  MILLRACE_TRY(KeysFile file, read_api_keys(flags.keys_path));
  if (!file.warning.empty()) std::fprintf(stderr, "millrace: warning: %s\n", file.warning.c_str());
  flags.service.keys = std::move(file.keys);
  return {};
}

// As the policy takes them; "" where all weigh the same.
std::string key_weights(const std::vector<ApiKey>& keys) {
  std::string out;
  for (const ApiKey& key : keys)
    if (key.weight != 1) out += fmt::format("{}{}:{}", out.empty() ? ":weights=" : ";", key.name, key.weight);
  return out;
}

// The chat template, and what of a budget is kept for structured output.
Result<void> read_texts(ServeFlags& flags) {
  if (!flags.template_file.empty()) {
    std::ifstream file(flags.template_file, std::ios::binary);
    flags.model.chat_template.assign(std::istreambuf_iterator<char>(file), {});
    if (!file || flags.model.chat_template.empty())
      return Error::user(fmt::format("{}: cannot be read, or is empty", flags.template_file));
  }
  if (!flags.constraint_memory.empty()) {
    MILLRACE_TRY(flags.engine.options.constraint_memory, parse_bytes(flags.constraint_memory));
  }
  return {};
}

// What a running server takes over from its flags as they are now; the rest is told of and left.
const std::set<std::string> kLive = {
    "--api-key",          "--api-key-file",      "--api-keys",          "--metrics-access",
    "--cors-origin",      "--request-timeout",   "--max-ttft",          "--max-body-bytes",
    "--max-bodies-bytes", "--max-header-bytes",  "--max-connections",   "--max-connections-per-address",
    "--max-queued-bytes", "--handshake-timeout", "--read-timeout",      "--idle-timeout",
    "--stall-timeout",    "--ping-seconds",      "--drain-timeout",     "--tls-cert",
    "--tls-key",          "--max-answers",       "--max-answer-tokens", "--max-prompt-tokens",
    "--max-messages",     "--max-stops",         "--max-stop-bytes",    "--max-constraint-bytes",
    "--max-logprobs"};

struct Running {
  Server& server;
  ServeFlags& flags;
  GivenFlags given;  // as it started
};

void add_connection_flags(CLI::App* command, HttpLimits& http) {
  const auto whole = [](int64_t least, int64_t most) { return CLI::Range(least, most); };
  const auto seconds = [](double least) { return CLI::Range(least, 1e6); };
  command->add_option("--max-body-bytes", http.body_bytes, "Of a request")
      ->capture_default_str()
      ->check(whole(1024, int64_t{1} << 30));
  command->add_option("--max-header-bytes", http.header_bytes, "Of a request")
      ->capture_default_str()
      ->check(whole(1024, 1 << 20));
  command->add_option("--max-connections", http.connections, "Open at once")
      ->capture_default_str()
      ->check(whole(1, 1 << 20));
  command->add_option("--max-queued-bytes", http.queued_bytes, "Of a stream whose reader is slow, before it is cut")
      ->capture_default_str()
      ->check(whole(4096, 1 << 30));
  command->add_option("--read-timeout", http.read_seconds, "Seconds for a request to come in whole")
      ->capture_default_str()
      ->check(seconds(0.1));
  command->add_option("--idle-timeout", http.idle_seconds, "Seconds between the requests of a connection")
      ->capture_default_str()
      ->check(seconds(0.1));
  command->add_option("--stall-timeout", http.stall_seconds, "Seconds without a byte taken by the reader of an answer")
      ->capture_default_str()
      ->check(seconds(0.1));
  command
      ->add_option("--ping-seconds", http.ping_seconds,
                   "A stream that is silent so long gets a comment, so that nothing between closes it")
      ->capture_default_str()
      ->check(seconds(0.1));
  command->add_option("--io-threads", http.io_threads, "Threads for sockets")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
}

void declare(CLI::App& app, ServeFlags& flags, std::function<Result<int>()> run);

void tell_what_stays(const GivenFlags& before, const GivenFlags& now) {
  std::set<std::string> names;
  for (const GivenFlags* given : {&before, &now})
    for (const auto& [name, values] : *given) names.insert(name);
  for (const std::string& name : names) {
    const auto was = before.find(name), is = now.find(name);
    if (kLive.contains(name) || (was != before.end() && is != now.end() && was->second == is->second)) continue;
    std::fprintf(stderr, "millrace: warning: reload: %s cannot change while the server runs; restart it for that\n",
                 name.c_str());
  }
}

// All or nothing: a fault anywhere leaves everything as it was.
Result<void> reload(Running& running) {
  ServeFlags fresh;
  MILLRACE_TRY(GivenFlags given,
               parse_again("serve", [&](CLI::App& app) { declare(app, fresh, [] { return Result<int>(0); }); }));
  MILLRACE_TRY_VOID(read_keys(fresh));
  if (fresh.keyless() != running.flags.keyless())
    return Error::user(
        "API keys: a server that has none gets none while it runs, and one that has some keeps some; restart it for "
        "that");
  MILLRACE_TRY(auto tls, fresh.load_tls());
  if ((tls == nullptr) != running.flags.tls_cert.empty())
    return Error::user("--tls-cert: TLS cannot be switched while the server runs; restart it for that");
  running.server.change(fresh.service, fresh.http, std::move(tls));
  running.flags.drain_seconds = fresh.drain_seconds;
  tell_what_stays(running.given, given);
  return {};
}

// Until the last answer is written, a second signal comes, or the limit is over.
void wait_for_drain(Server& server, ServeSignals& signals, double limit) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit);
  while (!server.drained() && std::chrono::steady_clock::now() < until)
    if (signals.wait(0.05) == ServeSignals::Signal::stop) return;
}

// "one", or "one, two and 3 more".
std::string names_of(ModelRegistry& models) {
  const auto list = models.list();
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(list.size(), 4); ++i) out += (i == 0 ? "" : ", ") + list[i].name;
  return list.empty() ? "no model yet" : list.size() > 4 ? fmt::format("{} and {} more", out, list.size() - 4) : out;
}

void add_telemetry_flags(CLI::App* command, TelemetryOptions& telemetry) {
  command
      ->add_option("--log-format", telemetry.log.format, "Of the log on stderr, a line for each request: text, or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command
      ->add_option("--log-level", telemetry.log.level,
                   "Least level that is logged: debug, info, warn (requests that failed), error, off")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}));
  command->add_flag("--log-prompts", telemetry.log.prompts, "Prompts too");
  command->add_option("--otlp-endpoint", telemetry.otlp.endpoint,
                      "Send spans as OTLP over HTTP with JSON, as in http://localhost:4318/v1/traces; what "
                      "OTEL_EXPORTER_OTLP_ENDPOINT says when absent");
  command->add_option("--otlp-ca", telemetry.otlp.ca_file,
                      "Certificates in PEM that an https endpoint's must come from, in the place of the system's");
  command->add_option("--record", telemetry.record,
                      "Write requests and digests of their answers to this file; `millrace replay --recording` asks "
                      "again and compares");
  command->add_flag("--record-prompts", telemetry.record_prompts,
                    "... with prompts and answers, without which nothing can be compared");
}

void wait_for_end(Running& running, ServeSignals& signals) {
  while (signals.wait() != ServeSignals::Signal::stop) {
    const auto done = reload(running);
    if (done.ok()) std::fprintf(stderr, "millrace: settings read again\n");
    if (!done.ok()) std::fprintf(stderr, "millrace: reload: %s; the old settings stay\n", done.error().message.c_str());
  }
  running.flags.service.telemetry->log().event(LogLevel::info, "draining",
                                               {{"limit_seconds", running.flags.drain_seconds}});
  running.server.drain();
  wait_for_drain(running.server, signals, running.flags.drain_seconds);
}

Result<int> serve(ServeFlags flags, const GivenFlags& given) {
  if (flags.api_docs) {
    fmt::print("{}", api_markdown());
    return 0;
  }
  MILLRACE_TRY_VOID(read_keys(flags));
  if (!is_loopback(flags.http.host) && flags.keyless() && !flags.allow_public)
    return Error::user(fmt::format(
        "host {}: others could use this server; give --api-keys, --api-key or --api-key-file, or say --allow-public",
        flags.http.host));
  flags.service.local_only = is_loopback(flags.http.host) && flags.keyless() && !flags.allow_public;
  MILLRACE_TRY(auto tls, flags.load_tls());
  ServeSignals signals;
  MILLRACE_TRY_VOID(read_texts(flags));
  for (const auto& [name, value] : flags.sampling.set) flags.service.seed_given |= name == "seed";
  flags.service.engine = flags.engine.get(flags.model);
  flags.service.pooling = find_pooling(flags.models.pooling);
  if (flags.service.engine.policy == "vtc") flags.engine.options.policy += key_weights(flags.service.keys);
  MILLRACE_TRY(auto models, flags.models.make(flags.model, flags.engine, flags.sampling));
  const std::string names = names_of(*models), first = models->resolve("").value_or("");
  MILLRACE_TRY(const Isa isa, select_isa());
  flags.telemetry.version = MILLRACE_VERSION;
  MILLRACE_TRY(flags.telemetry.otlp, with_otlp_environment(flags.telemetry.otlp, [](const char* name) -> const char* {
                 return std::getenv(name);
               }));
  MILLRACE_TRY(flags.service.telemetry,
               Telemetry::create(flags.telemetry, first,
                                 {first, std::string(isa_name(isa)), flags.service.engine.kv_format,
                                  flags.telemetry.record_prompts}));
  const char* scheme = tls ? "https" : "http";
  MILLRACE_TRY(auto server, Server::start(std::move(models), flags.service, flags.http, std::move(tls)));
  const std::string host =
      flags.http.host.find(':') == std::string::npos ? flags.http.host : "[" + flags.http.host + "]";
  signals.serving();
  fmt::print("millrace: {} at {}://{}:{}\n", names, scheme, host, server->port());
  fmt::print("Open {}://{}:{}/ in a browser, or chat in the terminal: millrace chat{}\n", scheme, host, server->port(),
             flags.model.path.empty() ? "" : " -m " + flags.model.path);
  std::fflush(stdout);
  RequestLog& log = flags.service.telemetry->log();
  log.event(LogLevel::info, "serving",
            {{"model", first}, {"host", flags.http.host}, {"port", server->port()}, {"version", MILLRACE_VERSION}});
  Running running{*server, flags, given};
  wait_for_end(running, signals);
  log.event(LogLevel::info, "stopped", {{"connections_cut", server->counts().connections}});
  return 0;
}

void add_limits(CLI::App* command, ServeFlags& flags) {
  HttpLimits& http = flags.http;
  RequestLimits& limits = flags.service.limits;
  const auto whole = [](int64_t least, int64_t most) { return CLI::Range(least, most); };
  const auto add = [&](const char* name, int64_t& value, const char* help, int64_t least, int64_t most) {
    command->add_option(name, value, help)->capture_default_str()->check(whole(least, most));
  };
  add("--max-connections-per-address", http.peer_connections, "The same, of one address; 0: as many as there may be", 0,
      1 << 20);
  add("--max-bodies-bytes", http.bodies_bytes, "Of all requests that are coming in", 1024, int64_t{1} << 40);
  add("--max-answers", limits.answers, "Of one request, over its prompts", 1, 65536);
  add("--max-answer-tokens", limits.max_tokens,
      "Tokens of an answer; what asks for more gets so many. 0: as the context has it", 0, INT32_MAX);
  add("--max-prompt-tokens", limits.prompt_tokens, "Tokens of a prompt; more are refused. 0: as the context has it", 0,
      INT32_MAX);
  add("--max-messages", limits.messages, "Of a conversation", 1, 1 << 20);
  add("--max-stops", limits.stops, "Stop strings of a request", 0, 64);
  add("--max-stop-bytes", limits.stop_bytes, "Of one of them", 1, 1 << 20);
  add("--max-constraint-bytes", limits.constraint_bytes, "Of a request's schema, grammar, regex or choices", 1,
      int64_t{1} << 30);
  add("--max-logprobs", limits.logprobs, "Likeliest tokens beside each", 0, 100);
  command
      ->add_option("--max-ttft", flags.service.max_ttft_seconds,
                   "Requests are refused when their first token is not to be expected within so many seconds; 0: never")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--tls-cert", flags.tls_cert,
                      "Certificate in PEM, with its chain: the server then speaks HTTPS only");
  command->add_option("--tls-key", flags.tls_key, "Its private key in PEM");
  command->add_option("--handshake-timeout", http.handshake_seconds, "Seconds for TLS to be agreed on")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
}

void declare(CLI::App& app, ServeFlags& flags, std::function<Result<int>()> run) {
  CLI::App* command = add_command(app, "serve", "Serve a model over HTTP", kExamples, std::move(run));
  flags.model.add_to(command);
  HttpLimits& http = flags.http;
  ServiceOptions& service = flags.service;
  const auto whole = [](int64_t least, int64_t most) { return CLI::Range(least, most); };
  const auto seconds = [](double least) { return CLI::Range(least, 1e6); };
  command->add_option("--host", http.host, "Address to listen at")->capture_default_str();
  command->add_option("--port", http.port, "Port; 0: any that is free")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  flags.models.add_to(command);
  command->add_option("--api-key", service.api_keys, "Key that requests must bring; may be given several times");
  command->add_option("--api-key-file", flags.key_file, "File with such keys, one a line");
  command->add_option("--api-keys", flags.keys_path,
                      "JSON file of named keys with roles, weights, rate limits and quotas; see docs/operation.md");
  command
      ->add_option("--metrics-access", service.metrics_role,
                   "Who may read /metrics where there are keys: admin, user (any key), everybody [admin]")
      ->type_name("TEXT")
      ->transform(
          CLI::CheckedTransformer(
              std::map<std::string, Role>{{"admin", Role::admin}, {"user", Role::user}, {"everybody", Role::nobody}})
              .description("{admin,user,everybody}"));
  command->add_flag("--allow-public", flags.allow_public,
                    "Whoever reaches the address may ask without a key, under any host name");
  command->add_flag("--api-docs", flags.api_docs, "Print what requests may hold, and leave");
  command->add_option("--cors-origin", service.origins,
                      "Web pages that may ask from a browser, as https://name; '*': any. May be given several times");
  command->add_option("--max-streams", flags.engine.options.max_streams, "Streams that run at once; more wait")
      ->capture_default_str()
      ->check(whole(1, 65536));
  command->add_option("--queue", flags.engine.options.queue, "Streams that wait at most; more are refused with 429")
      ->capture_default_str()
      ->check(whole(0, 1 << 24));
  command->add_option("--chat-template-file", flags.template_file,
                      "Chat template (Jinja) in the place of the model's own");
  command->add_option("--constraint-memory", flags.constraint_memory,
                      "Of --memory, kept for structured output and tools; a sixteenth when absent, 64M at most");
  command
      ->add_option("--stored-responses", service.stored_responses,
                   "Answers of /v1/responses that are kept for previous_response_id; 0: none")
      ->capture_default_str()
      ->check(whole(0, 1 << 20));
  command->add_option("--stored-response-bytes", service.stored_response_bytes, "... and their size in all")
      ->capture_default_str()
      ->check(whole(0, int64_t{1} << 36));
  command
      ->add_option("--request-timeout", service.timeout_seconds, "Seconds after which an answer ends as it is; 0: none")
      ->check(seconds(0));
  command->add_option("--files-dir", service.files_dir,
                      "Folder for uploaded files and batches, this server's alone; none without it");
  command->add_option("--files-count", service.files.files, "Files there at most")
      ->capture_default_str()
      ->check(whole(1, 1 << 20));
  command->add_option("--files-bytes", service.files.bytes, "Bytes of them together")
      ->capture_default_str()
      ->check(whole(1024, int64_t{1} << 50));
  command
      ->add_option("--key-files-count", service.files.key_files,
                   "Files of one key at most that is no admin's and does not say itself")
      ->capture_default_str()
      ->check(whole(1, 1 << 20));
  command->add_option("--key-files-bytes", service.files.key_bytes, "Bytes of them together")
      ->capture_default_str()
      ->check(whole(1024, int64_t{1} << 50));
  command->add_option("--batch-lines", service.batches.in_flight, "Lines of a batch that are under way at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command
      ->add_option(
          "--stream-grace", service.streams.grace_seconds,
          "Seconds that a stream with an X-Conversation-Id goes on without its reader, who may come back; 0: none does")
      ->capture_default_str()
      ->check(seconds(0));
  command->add_option("--stream-keep", service.streams.keep_seconds, "Seconds that it can be read after its end")
      ->capture_default_str()
      ->check(seconds(0));
  command->add_option("--stream-bytes", service.streams.stream_bytes, "Bytes of one that are kept, the last ones")
      ->capture_default_str()
      ->check(whole(4096, int64_t{1} << 30));
  command->add_option("--streams-bytes", service.streams.total_bytes, "Bytes of all of them")
      ->capture_default_str()
      ->check(whole(4096, int64_t{1} << 40));
  command
      ->add_option("--metrics-alias", service.metrics_alias, "Metrics under another server's names too: vllm, llamacpp")
      ->check(CLI::IsMember({"vllm", "llamacpp"}));
  add_telemetry_flags(command, flags.telemetry);
  add_connection_flags(command, http);
  command->add_option("--drain-timeout", flags.drain_seconds, "Seconds that streams have to finish after SIGTERM")
      ->capture_default_str()
      ->check(seconds(0));
  flags.engine.add_to(command);
  flags.engine.add_adapters_to(command, "Requests choose them as model NAME, or by the field lora");
  flags.sampling.add_to(command);
  add_limits(command, flags);
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  declare(app, *flags, [&app, flags] { return serve(*flags, given_flags(*app.get_subcommand("serve"))); });
}

}  // namespace millrace
