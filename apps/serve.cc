// millrace serve: serves models over HTTP.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "arguments.h"
#include "base/memory_accounts.h"
#include "base/secret_memory.h"
#include "base/system.h"
#include "base/version.h"
#include "cluster/store_node.h"
#include "command.h"
#include "config_file.h"
#include "durations.h"
#include "index_flags.h"
#include "model_flags.h"
#include "node_flags.h"
#include "parse_again.h"
#include "retrieve/named_indexes.h"
#include "run/language_model.h"
#include "serve_models.h"
#include "serve_signals.h"
#include "server/api/api_docs.h"
#include "server/server.h"

namespace millrace {
namespace {

constexpr const char* kServeExamples = R"(Examples:
  millrace serve                                        the built-in model at http://127.0.0.1:8080
  millrace serve qwen3:0.6b                             a model by its short name; the download is offered
  millrace serve -m model.gguf --alias gpt-4o --port 9000
  millrace serve -m fast=small.gguf -m good=large.gguf --memory 20G --idle-unload 600
  millrace serve --models-dir ~/models                  load each model at its first request
  millrace serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt
  curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'

The first SIGTERM or Ctrl-C rejects new requests and lets running ones finish; the second one stops immediately.
SIGHUP reloads the config file, keys and certificates; settings that need a restart are logged and ignored.)";

// Answers stay the same, and steps verify drafts only where that makes them faster.
constexpr const char* kServeDrafter = "best:of=ngram+suffix:k=8";

struct ServeFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  HttpLimits http;
  ServiceOptions service;
  TelemetryOptions telemetry;
  ServeModels models;
  NodeFlags node;
  std::vector<std::string> indexes;  // NAME=FOLDER
  std::string key_file, template_file, constraint_memory, keys_path, tls_cert, tls_key;
  bool allow_public = false, api_docs = false, no_page = false;
  double drain_seconds = 30;

  bool keyless() const { return service.api_keys.empty() && service.keys.empty(); }
  // Null: no TLS.
  Result<std::shared_ptr<const TlsContext>> load_tls() const {
    if (tls_cert.empty() != tls_key.empty()) return Error::user("--tls-cert: requires --tls-key, and vice versa");
    if (tls_cert.empty()) return std::shared_ptr<const TlsContext>();
    return TlsContext::load(tls_cert, tls_key);
  }
};

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// Collects the keys of the flags and files.
Result<void> read_keys(ServeFlags& flags) {
  std::vector<std::string>& keys = flags.service.api_keys;
  if (!flags.key_file.empty()) {
    MILLRACE_TRY(std::string text, read_secret_file(flags.key_file, kMaxKeysFileBytes));
    const size_t before = keys.size();
    keys.reserve(before + static_cast<size_t>(std::ranges::count(text, '\n')) + 1);  // growing would leave copies
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      if (!line.empty() && line[0] != '#') keys.emplace_back(line);
      begin = end + 1;
    }
    wipe(text);
    if (keys.size() == before)
      return Error::corrupt(fmt::format("{}: contains no keys; expected one per line", flags.key_file));
  }
  for (const std::string& key : keys)
    if (key.empty() || key.size() > 1024) return Error::user("API key: must have 1 to 1024 characters");
  if (!flags.keys_path.empty()) {
    MILLRACE_TRY(KeysFile file, read_api_keys(flags.keys_path));
    if (!file.warning.empty()) std::fprintf(stderr, "millrace: warning: %s\n", file.warning.c_str());
    flags.service.keys = std::move(file.keys);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    flags.service.keys.push_back(plain_api_key(keys[i], i + 1));
    wipe(keys[i]);
  }
  keys.clear();
  return {};
}

// The key weights as an option of the policy; "": all equal.
std::string key_weights(const std::vector<ApiKey>& keys) {
  std::string out;
  for (const ApiKey& key : keys)
    if (key.weight != 1) out += fmt::format("{}{}:{}", out.empty() ? ":weights=" : ";", key.name, key.weight);
  return out;
}

// Reads the chat template and parses --constraint-memory.
Result<void> read_texts(ServeFlags& flags) {
  if (!flags.template_file.empty()) {
    std::ifstream file(flags.template_file, std::ios::binary);
    flags.model.chat_template.assign(std::istreambuf_iterator<char>(file), {});
    if (!file || flags.model.chat_template.empty())
      return Error::corrupt(fmt::format("{}: cannot be read, or is empty", flags.template_file));
  }
  if (!flags.constraint_memory.empty()) {
    MILLRACE_TRY(flags.engine.options.constraint_memory, parse_bytes(flags.constraint_memory));
  }
  return {};
}

// Flags that a reload applies; other changes are logged and ignored.
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
  GivenFlags given;  // at startup
};

void declare(CLI::App& app, ServeFlags& flags, std::function<Result<int>()> run);

void warn_about_ignored_changes(const GivenFlags& before, const GivenFlags& now) {
  std::set<std::string> names;
  for (const GivenFlags* given : {&before, &now})
    for (const auto& [name, values] : *given) names.insert(name);
  for (const std::string& name : names) {
    const auto was = before.find(name), is = now.find(name);
    if (kLive.contains(name) || (was != before.end() && is != now.end() && was->second == is->second)) continue;
    std::fprintf(stderr, "millrace: warning: reload: changing %s requires a restart; ignored\n", name.c_str());
  }
}

// Applies everything or nothing: any error leaves all settings unchanged.
Result<void> reload(Running& running) {
  ServeFlags fresh;
  MILLRACE_TRY(GivenFlags given,
               parse_again("serve", [&](CLI::App& app) { declare(app, fresh, [] { return Result<int>(0); }); }));
  MILLRACE_TRY_VOID(read_keys(fresh));
  if (fresh.keyless() != running.flags.keyless())
    return Error::user("API keys: adding the first key or removing the last one requires a restart");
  MILLRACE_TRY(auto tls, fresh.load_tls());
  if ((tls == nullptr) != running.flags.tls_cert.empty())
    return Error::user("--tls-cert: turning TLS on or off requires a restart");
  running.server.change(fresh.service, fresh.http, std::move(tls));
  running.flags.drain_seconds = fresh.drain_seconds;
  warn_about_ignored_changes(running.given, given);
  return {};
}

// Waits until the last answer is written, a second signal arrives, or the limit is over.
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

void add_file_flags(CLI::App* command, ServeFlags& flags) {
  ServiceOptions& service = flags.service;
  const auto whole = [](int64_t least, int64_t most) { return CLI::Range(least, most); };
  command->add_option("--files-dir", service.files_dir,
                      "Folder for uploaded files and batches, used by this server only; default: no files and batches");
  command
      ->add_option(
          "--index", flags.indexes,
          "Index of documents (millrace index) that requests name in millrace.retrieve: NAME=FOLDER; repeatable")
      ->allow_extra_args(false);
  command->add_option("--files-count", service.files.files, "Most stored files")
      ->capture_default_str()
      ->check(whole(1, 1 << 20));
  command->add_option("--files-bytes", service.files.bytes, "Total size of stored files in bytes")
      ->capture_default_str()
      ->check(whole(1024, int64_t{1} << 50));
  command
      ->add_option("--key-files-count", service.files.key_files,
                   "Most stored files per key without the role admin, unless the key has its own limit")
      ->capture_default_str()
      ->check(whole(1, 1 << 20));
  command
      ->add_option("--key-files-bytes", service.files.key_bytes,
                   "Total size in bytes of the stored files of such a key")
      ->capture_default_str()
      ->check(whole(1024, int64_t{1} << 50));
}

void add_telemetry_flags(CLI::App* command, TelemetryOptions& telemetry) {
  command
      ->add_option("--log-format", telemetry.log.format,
                   "Format of the log on stderr, one line per request: text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  command
      ->add_option("--log-level", telemetry.log.level,
                   "Lowest level to log: debug, info, warn (failed requests), error or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}));
  command->add_flag("--log-prompts", telemetry.log.prompts, "Log prompts too");
  command->add_option(
      "--otlp-endpoint", telemetry.otlp.endpoint,
      "Send trace spans as OTLP over HTTP with JSON to this URL, such as http://localhost:4318/v1/traces; "
      "default: OTEL_EXPORTER_OTLP_ENDPOINT");
  command->add_option("--otlp-ca", telemetry.otlp.ca_file,
                      "PEM file of certificate authorities to trust for an https endpoint instead of the system's");
  command->add_option(
      "--record", telemetry.record,
      "Record requests and digests of their answers in this file; `millrace replay --recording` repeats "
      "them and compares");
  command->add_flag("--record-prompts", telemetry.record_prompts,
                    "Record prompts and answers too; without them a replay cannot compare answers");
}

void wait_for_end(Running& running, ServeSignals& signals) {
  while (signals.wait() != ServeSignals::Signal::stop) {
    const auto done = reload(running);
    if (done.ok()) std::fprintf(stderr, "millrace: settings reloaded\n");
    if (!done.ok())
      std::fprintf(stderr, "millrace: reload: %s; keeping the old settings\n", done.error().message.c_str());
  }
  running.flags.service.telemetry->log().event(LogLevel::info, "draining",
                                               {{"limit_seconds", running.flags.drain_seconds}});
  running.server.drain();
  wait_for_drain(running.server, signals, running.flags.drain_seconds);
}

// A node that keeps blocks for others and has no model.
Result<int> serve_store(const ServeFlags& flags) {
  if (!flags.models.models.empty() || !flags.models.words.empty())
    return Error::user("--role store: keeps blocks and has no model; remove the model");
  if (!flags.tls_cert.empty() || !flags.tls_key.empty())
    return Error::unsupported("--tls-cert: a store has no TLS; use a network that is trusted");
  ServeSignals signals;
  MILLRACE_TRY_VOID(signals.start());
  std::string no_store;
  MILLRACE_TRY(auto exchange, flags.node.make(flags.http.host, no_store));
  const std::string blocks = fmt::format("{}:{}", exchange->options().server.host, exchange->port());
  MILLRACE_TRY(const auto node, StoreNode::start(std::move(exchange), flags.service.keys, flags.http));
  signals.serving();
  fmt::print("millrace: a store of blocks ({}) at http://{}:{}\n", blocks, flags.http.host, node->port());
  std::fflush(stdout);
  while (signals.wait() != ServeSignals::Signal::stop) {
  }
  return 0;
}

Result<int> serve(ServeFlags flags, const GivenFlags& given) {
  if (std::getenv("MILLRACE_END_WITH_PARENT")) end_with_parent();  // a node of `millrace cluster up`
  if (flags.api_docs) {
    fmt::print("{}", api_markdown());
    return 0;
  }
  MILLRACE_TRY_VOID(read_keys(flags));
  std::string& prefix = flags.http.path_prefix;
  while (prefix.ends_with('/')) prefix.pop_back();
  if (!prefix.empty() && !prefix.starts_with('/'))
    return Error::user(fmt::format("--api-prefix {}: must begin with '/'", prefix));
  if (!is_loopback(flags.http.host) && flags.keyless() && !flags.allow_public)
    return Error::user(fmt::format(
        "host {}: other machines could use this server; set --api-keys, --api-key or --api-key-file, or --allow-public",
        flags.http.host));
  if (flags.node.is_store()) return serve_store(flags);
  flags.service.page = !flags.no_page;
  flags.service.local_only = is_loopback(flags.http.host) && flags.keyless() && !flags.allow_public;
  MILLRACE_TRY(auto tls, flags.load_tls());
  MILLRACE_TRY_VOID(flags.models.place_words());
  ServeSignals signals;
  MILLRACE_TRY_VOID(signals.start());
  MILLRACE_TRY_VOID(read_texts(flags));
  for (const auto& [name, value] : flags.sampling.set) flags.service.seed_given |= name == "seed";
  MILLRACE_TRY(flags.service.exchange, flags.node.make(flags.http.host, flags.engine.options.kv_store));
  MILLRACE_TRY(flags.service.engine, flags.engine.get(flags.model));
  flags.engine.vtc_weights = key_weights(flags.service.keys);
  flags.service.pooling = find_pooling(flags.models.pooling);
  MILLRACE_TRY(auto models, flags.models.make(flags.model, flags.engine, flags.sampling));
  const std::string names = names_of(*models), first = models->resolve("").value_or("");
  MILLRACE_TRY(const Isa isa, select_isa());
  flags.telemetry.version = kVersionText;
  MILLRACE_TRY(flags.telemetry.otlp, with_otlp_environment(flags.telemetry.otlp, [](const char* name) -> const char* {
                 return std::getenv(name);
               }));
  MILLRACE_TRY(flags.service.telemetry, Telemetry::create(flags.telemetry, first,
                                                          {first, isa_name(isa), flags.service.engine.kv_format,
                                                           flags.telemetry.record_prompts}));
  if (!flags.indexes.empty()) {
    const auto load = [&](const std::string& name) { return load_named(name, flags.model.threads); };
    MILLRACE_TRY(flags.service.indexes, NamedIndexes::open(flags.indexes, load, flags.model.threads));
  }
  const char* scheme = tls ? "https" : "http";
  MILLRACE_TRY(auto server, Server::start(std::move(models), flags.service, flags.http, std::move(tls)));
  const std::string host =
      flags.http.host.find(':') == std::string::npos ? flags.http.host : "[" + flags.http.host + "]";
  signals.serving();
  fmt::print("millrace: {} at {}://{}:{}\n", names, scheme, host, server->port());
  const std::string chat = flags.models.chat_command();
  if (!flags.no_page)
    fmt::print("Open {}://{}:{}/ in a browser{}\n", scheme, host, server->port(),
               chat.empty() ? "" : ", or chat in the terminal: " + chat);
  std::fflush(stdout);
  RequestLog& log = flags.service.telemetry->log();
  log.event(LogLevel::info, "serving",
            {{"model", first}, {"host", flags.http.host}, {"port", server->port()}, {"version", kVersionText}});
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
  command->option_defaults()->group("Limits of requests and connections");
  add("--max-connections-per-address", http.peer_connections,
      "Most open connections per client address; 0: no separate limit", 0, 1 << 20);
  add("--max-bodies-bytes", http.bodies_bytes, "Total size in bytes of all request bodies being received", 1024,
      int64_t{1} << 40);
  add("--max-answers", limits.answers, "Most answers per request, over all its prompts", 1, 65536);
  add("--max-answer-tokens", limits.max_tokens,
      "Most tokens per answer; larger requests are capped. 0: limited by the context", 0, INT32_MAX);
  add("--max-prompt-tokens", limits.prompt_tokens,
      "Most tokens per prompt; longer ones are rejected. 0: limited by the context", 0, INT32_MAX);
  add("--max-messages", limits.messages, "Most messages per conversation", 1, 1 << 20);
  add("--max-stops", limits.stops, "Most stop strings per request", 0, 64);
  add("--max-stop-bytes", limits.stop_bytes, "Longest stop string in bytes", 1, 1 << 20);
  add("--max-constraint-bytes", limits.constraint_bytes, "Largest schema, grammar, regex or list of choices in bytes",
      1, int64_t{1} << 30);
  add("--max-logprobs", limits.logprobs, "Most alternatives per token in logprobs", 0, 100);
  command
      ->add_option("--max-ttft", flags.service.max_ttft_seconds,
                   "Reject requests whose expected time to first token is later than this; 0: never")
      ->transform(as_seconds())
      ->check(CLI::Range(0.0, 1e6));
  command->option_defaults()->group("Keys and TLS");
  command->add_option("--tls-cert", flags.tls_cert,
                      "PEM file with the certificate and its chain; enables HTTPS and disables HTTP");
  command->add_option("--tls-key", flags.tls_key, "PEM file with the certificate's private key");
  command->add_option("--handshake-timeout", http.handshake_seconds, "Time for a TLS handshake")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(CLI::Range(0.1, 1e6));
  flags.node.add_to(command);
}

void add_proxy_flags(CLI::App* command, ServeFlags& flags) {
  command->add_option("--api-prefix", flags.http.path_prefix,
                      "Path under which a proxy publishes this server, such as /llm; requests may have it or not");
  command->add_option("--trusted-proxy", flags.http.trusted_proxies,
                      "Address of a proxy whose X-Forwarded-For and X-Forwarded-Host headers count. Repeatable");
  command->add_option("--cors-origin", flags.service.origins,
                      "Origin of web pages that may send requests, such as https://name; '*': any. Repeatable");
}

void add_connection_flags(CLI::App* command, HttpLimits& http) {
  const auto whole = [](int64_t least, int64_t most) { return CLI::Range(least, most); };
  const auto seconds = [](double least) { return CLI::Range(least, 1e6); };
  command->option_defaults()->group("Limits of requests and connections");
  command->add_option("--max-body-bytes", http.body_bytes, "Largest request body in bytes")
      ->capture_default_str()
      ->check(whole(1024, int64_t{1} << 30));
  command->add_option("--max-header-bytes", http.header_bytes, "Largest request header in bytes")
      ->capture_default_str()
      ->check(whole(1024, 1 << 20));
  command->add_option("--max-connections", http.connections, "Most open connections")
      ->capture_default_str()
      ->check(whole(1, 1 << 20));
  command
      ->add_option("--max-queued-bytes", http.queued_bytes,
                   "Most unsent bytes per stream before a slow client is disconnected")
      ->capture_default_str()
      ->check(whole(4096, 1 << 30));
  command->add_option("--read-timeout", http.read_seconds, "Time to receive a complete request")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(seconds(0.1));
  command->add_option("--idle-timeout", http.idle_seconds, "Time between two requests of a connection")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(seconds(0.1));
  command->add_option("--stall-timeout", http.stall_seconds, "Time without the client accepting a byte of its answer")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(seconds(0.1));
  command
      ->add_option("--ping-seconds", http.ping_seconds,
                   "Send a comment on a stream that has been idle for this long, so that proxies keep it open")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(seconds(0.1));
  command->add_option("--io-threads", http.io_threads, "Threads for socket I/O")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
}

void declare(CLI::App& app, ServeFlags& flags, std::function<Result<int>()> run) {
  CLI::App* command = add_command(app, "serve", "Serve a model over HTTP", kServeExamples, std::move(run));
  flags.model.add_to(command);
  flags.model.add_pack_to(command);
  HttpLimits& http = flags.http;
  ServiceOptions& service = flags.service;
  const auto whole = [](int64_t least, int64_t most) { return CLI::Range(least, most); };
  const auto seconds = [](double least) { return CLI::Range(least, 1e6); };
  command->add_option("--host", http.host, "Address to listen on")->capture_default_str();
  command->add_option("--port", http.port, "Port; 0: any free port")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  flags.models.add_to(command);
  command->option_defaults()->group("Keys and TLS");
  command->add_option("--api-key", service.api_keys, "API key that requests must send; repeatable");
  command->add_option("--api-key-file", flags.key_file, "File with API keys, one per line");
  command->add_option("--api-keys", flags.keys_path,
                      "JSON file of named keys with roles, weights, rate limits and quotas; see docs/operation.md");
  command
      ->add_option("--metrics-access", service.metrics_role,
                   "Access to /metrics on a server with keys: admin, user (any key) or everybody [admin]")
      ->type_name("TEXT")
      ->transform(CLI::CheckedTransformer(std::map<std::string, Role>{
                                              {"admin", Role::admin}, {"user", Role::user}, {"everybody", Role::none}})
                      .description("{admin,user,everybody}"));
  command->add_flag("--allow-public", flags.allow_public,
                    "Accept requests from everyone, without a key and for any host name");
  command->option_defaults()->group("Options");
  command->add_flag("--enable-prompt-embeds", service.prompt_embeds,
                    "Accept prompt_embeds in /v1/completions: rows of the embedding table instead of a prompt");
  command->add_flag("--api-docs", flags.api_docs, "Print the API reference and exit");
  command->add_flag("--no-webui", flags.no_page, "Do not serve the page at /, only the API");
  add_proxy_flags(command, flags);
  command
      ->add_option("--max-streams,--parallel", flags.engine.options.max_streams,
                   "Concurrently running streams; further ones are queued")
      ->capture_default_str()
      ->check(whole(1, 65536));
  command->add_option("--queue", flags.engine.options.queue, "Most queued streams; further ones are rejected with 429")
      ->capture_default_str()
      ->check(whole(0, 1 << 24));
  command->add_option("--chat-template-file", flags.template_file,
                      "Jinja chat template to use instead of the model's own");
  command->add_option("--constraint-memory", flags.constraint_memory,
                      "Part of --memory reserved for structured output and tools; default: a sixteenth, at most 64M");
  command->option_defaults()->group("Files, batches and stored answers");
  command
      ->add_option("--stored-responses", service.stored_responses,
                   "Answers of /v1/responses to store for previous_response_id; 0: none")
      ->capture_default_str()
      ->check(whole(0, 1 << 20));
  command->add_option("--stored-response-bytes", service.stored_response_bytes, "Total size of stored answers in bytes")
      ->capture_default_str()
      ->check(whole(0, int64_t{1} << 36));
  command->option_defaults()->group("Limits of requests and connections");
  command->add_option("--request-timeout", service.timeout_seconds, "Time after which an answer is ended; 0: no limit")
      ->transform(as_seconds())
      ->check(seconds(0));
  command->option_defaults()->group("Files, batches and stored answers");
  add_file_flags(command, flags);
  command->add_option("--batch-lines", service.batches.in_flight, "Concurrently running lines of a batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--stream-grace", service.streams.grace_seconds,
                   "How long a stream with an X-Conversation-Id continues after a disconnect, so that the client "
                   "can resume it; 0: none")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(seconds(0));
  command
      ->add_option("--stream-keep", service.streams.keep_seconds, "How long such a stream can be resumed after its end")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(seconds(0));
  command
      ->add_option("--stream-bytes", service.streams.stream_bytes,
                   "Size of the end of such a stream that is stored, in bytes")
      ->capture_default_str()
      ->check(whole(4096, int64_t{1} << 30));
  command->add_option("--streams-bytes", service.streams.total_bytes, "Total size of all stored streams, in bytes")
      ->capture_default_str()
      ->check(whole(4096, int64_t{1} << 40));
  command->option_defaults()->group("Logs, metrics and traces");
  command
      ->add_option("--metrics-alias", service.metrics_aliases,
                   "Export metrics under the names of vllm or llamacpp too. Repeatable")
      ->check(CLI::IsMember({"vllm", "llamacpp"}));
  add_telemetry_flags(command, flags.telemetry);
  add_connection_flags(command, http);
  command->option_defaults()->group("Options");
  command->add_option("--drain-timeout", flags.drain_seconds, "Time for running streams to finish after SIGTERM")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(seconds(0));
  flags.engine.options.drafter = kServeDrafter;
  flags.engine.add_to(command);
  flags.engine.add_adapters_to(command, "Requests select them as model NAME or with the field lora");
  flags.sampling.add_to(command);
  add_limits(command, flags);
  command->option_defaults()->group("Options");
  take_one_value_each(command);
}

}  // namespace

void add_serve_command(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  declare(app, *flags, [&app, flags] {
    const CLI::App& command = *app.get_subcommand("serve");
    flags->models.flag_given = on_command_line(command, "--model");
    return serve(*flags, given_flags(command));
  });
}

}  // namespace millrace
