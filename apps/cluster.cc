// millrace cluster: several servers behind one address.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/cpu.h"
#include "base/json_text.h"
#include "base/network_error.h"
#include "base/system.h"
#include "cluster/local_node.h"
#include "cluster/router.h"
#include "command.h"
#include "durations.h"
#include "hub/http_get.h"
#include "input.h"
#include "kv/transfer/transport.h"
#include "running.h"
#include "serve_signals.h"
#include "server/http/http_post.h"
#include "table_room.h"

namespace millrace {
namespace {

constexpr const char* kClusterExamples = R"(Examples:
  millrace cluster up                        three servers of the built-in model on this machine, and a router
  millrace cluster up -m model.gguf --nodes 2 --port 8080
  millrace cluster up --prefill 1 --decode 2           prompts are computed on one node, answers generated on the others
  millrace cluster route --node 10.0.0.1:8080 --node 10.0.0.2:8080    a router for servers that run already
  millrace cluster status
  millrace cluster drain node-2              its requests continue; it receives no new ones

A node that is lost in the middle of an answer is replaced by another one, which continues with the same bits.)";
constexpr const char* kUpExamples = R"(Examples:
  millrace cluster up
  millrace cluster up -m model.gguf --nodes 2 --port 8080 --node-flag=--memory=8G
  curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "Hello"}]}'

It runs until SIGTERM or Ctrl-C. A node that ends is started again.)";
constexpr const char* kRouteExamples = R"(Examples:
  millrace cluster route --node 10.0.0.1:8080 --node 10.0.0.2:8080
  MILLRACE_NODE_KEY=secret millrace cluster route --node 10.0.0.1:8080 --host 0.0.0.0 --api-key-file keys.txt

All nodes must serve the same models with the same settings. Their API key, which must be one without limits, is read
from MILLRACE_NODE_KEY.)";
constexpr const char* kStatusExamples = R"(Examples:
  millrace cluster status
  millrace cluster status --url http://localhost:9000 --json

The key of a router with API keys is read from MILLRACE_API_KEY.)";
constexpr const char* kDrainExamples = R"(Examples:
  millrace cluster drain node-2
  millrace cluster drain node-2 --undo)";

constexpr double kReadySeconds = 600;  // for a node to load its model
constexpr double kEndSeconds = 10;
constexpr auto kReplyLimit = std::chrono::seconds(30);
constexpr size_t kMaxReplyBytes = size_t{16} << 20;

struct RouterFlags {
  HttpLimits http;
  std::vector<std::string> prefill_nodes;
  std::string route = std::string(routes().front().name), key_file;
  std::vector<std::string> nodes;
  double node_seconds = 6, wait_seconds = 30, drain_seconds = 30;
};

struct UpFlags {
  RouterFlags router;
  std::string model = "lab";
  int nodes = -1, prefill = 0, decode = 0, store = 0, threads = 0;  // nodes: -1: 3, or none if there are roles
  std::string transport = "shm";
  std::vector<std::string> node_flags;
  bool json = false;
};

struct AskFlags {
  std::string url = "http://127.0.0.1:8080", node;
  bool json = false, wide = false, undo = false;
};

Result<RouterOptions> options_of(const RouterFlags& flags) {
  RouterOptions options;
  options.route = find_route(flags.route);
  options.wait_seconds = flags.wait_seconds;
  constexpr int kQuestions = 3;
  options.table.failures = kQuestions;
  options.table.answer_seconds = flags.node_seconds / kQuestions;
  if (!flags.key_file.empty()) {
    MILLRACE_TRY(const std::string text, read_secret_file(flags.key_file, kMaxKeysFileBytes));
    for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      if (end > begin && text[begin] != '#')
        options.keys.push_back(
            plain_api_key(std::string_view(text).substr(begin, end - begin), options.keys.size() + 1));
    }
    if (options.keys.empty()) return Error::corrupt(flags.key_file + ": contains no keys; expected one per line");
  }
  const std::string& host = flags.http.host;
  if (options.keys.empty() && host != "localhost" && host != "::1" && !host.starts_with("127."))
    return Error::user(fmt::format("host {}: other machines could use this router; set --api-key-file", host));
  return options;
}

std::string url_of(const HttpLimits& http, int port) {
  return fmt::format("http://{}:{}", http.host.find(':') == std::string::npos ? http.host : "[" + http.host + "]",
                     port);
}

void drain(ClusterRouter& router, ServeSignals& signals, double limit) {
  router.drain();
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit);
  while (!router.drained() && std::chrono::steady_clock::now() < until)
    if (signals.wait(0.05) == ServeSignals::Signal::stop) return;
}

Result<int> run_route(const RouterFlags& flags) {
  MILLRACE_TRY(RouterOptions options, options_of(flags));
  for (const std::string& node : flags.nodes) {
    MILLRACE_TRY(NodeAddress address, NodeAddress::parse(node));
    options.nodes.push_back({std::move(address)});
  }
  for (const std::string& node : flags.prefill_nodes) {
    MILLRACE_TRY(NodeAddress address, NodeAddress::parse(node));
    options.nodes.push_back({std::move(address), NodeRole::prefill});
  }
  if (const char* key = std::getenv("MILLRACE_NODE_KEY")) options.table.key = key;
  ServeSignals signals;
  MILLRACE_TRY_VOID(signals.start());
  MILLRACE_TRY(const auto router, ClusterRouter::start(std::move(options), flags.http));
  signals.serving();
  fmt::print("millrace: a router for {} nodes at {}\n", flags.nodes.size() + flags.prefill_nodes.size(),
             url_of(flags.http, router->port()));
  std::fflush(stdout);
  while (signals.wait() != ServeSignals::Signal::stop) {
  }
  drain(*router, signals, flags.drain_seconds);
  return 0;
}

// A folder that only this user may read, with the key of the nodes. The destructor removes it.
class KeyFolder {
 public:
  static Result<std::unique_ptr<KeyFolder>> create() {
    std::error_code failed;
    std::string path = (std::filesystem::temp_directory_path(failed) / "millrace-cluster-XXXXXX").string();
    if (failed || !::mkdtemp(path.data())) return Error::resource(fmt::format("{}: cannot be created", path));
    auto out = std::unique_ptr<KeyFolder>(new KeyFolder(path));
    std::random_device source;
    for (int i = 0; i < 8; ++i) out->key_ += fmt::format("{:08x}", source());
    const mode_t before = ::umask(0077);
    std::ofstream file(out->file());
    file << out->key_ << "\n";
    file.close();
    ::umask(before);
    if (!file) return Error::resource(fmt::format("{}: cannot be written", out->file()));
    return out;
  }
  ~KeyFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file() const { return path_ + "/key"; }
  const std::string& key() const { return key_; }

 private:
  explicit KeyFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
  std::string key_;
};

// The nodes of a cluster on this machine, in the order of their names.
struct UpNodes {
  std::vector<std::unique_ptr<LocalNode>> nodes;
  std::vector<NodeRole> roles;

  Result<void> add(NodeRole role, std::vector<std::string> arguments) {
    nodes.push_back(std::make_unique<LocalNode>(std::move(arguments)));
    roles.push_back(role);
    return nodes.back()->start();
  }
};

// Starts the store and waits for it. Returns the flag by which the other nodes reach it.
Result<std::string> start_store(const UpFlags& flags, const std::string& key_file, UpNodes& up) {
  MILLRACE_TRY_VOID(up.add(NodeRole::store, {program_path(), "serve", "--role", "store", "--api-key-file", key_file,
                                             "--transfer-key-file", key_file}));
  LocalNode& node = *up.nodes.back();
  MILLRACE_TRY_VOID(node.wait_ready(kReadySeconds));
  const std::string& said = node.said();  // "... (HOST:PORT) at ..."
  const size_t colon = said.find(':', said.find('('));
  const std::string port = said.substr(colon + 1, said.find(')') - colon - 1);
  node.add_argument("--transfer-port=" + port);  // also after it has ended and is started again
  return fmt::format("--kv-store=node:host=127.0.0.1,port={},transport={}", port, flags.transport);
}

Result<UpNodes> start_nodes(const UpFlags& flags, const std::string& key_file) {
  const bool roles = flags.prefill > 0 || flags.decode > 0;
  const int mixed = flags.nodes >= 0 ? flags.nodes : roles ? 0 : 3;
  const int all = mixed + flags.prefill + flags.decode;
  if (all == 0) return Error::user("--nodes 0: a cluster needs a node with the model");
  if (flags.prefill > 0 && all == flags.prefill)
    return Error::user("--prefill: needs nodes that generate, too; add --decode");
  UpNodes up;
  std::string store;
  if (flags.store > 0) {
    MILLRACE_TRY(store, start_store(flags, key_file, up));
  }
  const int threads = flags.threads > 0 ? flags.threads : std::max(1, available_cores() / all);
  std::vector<std::string> arguments = {
      program_path(),   "serve",  "-m",         flags.model,   "-t",   std::to_string(threads),
      "--api-key-file", key_file, "--no-webui", "--log-level", "error"};
  if (!store.empty()) arguments.push_back(store);
  if (roles || !store.empty())
    arguments.insert(arguments.end(), {"--transfer-key-file", key_file, "--transport", flags.transport});
  arguments.insert(arguments.end(), flags.node_flags.begin(), flags.node_flags.end());
  const std::pair<NodeRole, int> counts[] = {
      {NodeRole::mixed, mixed}, {NodeRole::prefill, flags.prefill}, {NodeRole::decode, flags.decode}};
  for (const auto& [role, count] : counts)
    for (int i = 0; i < count; ++i) {
      std::vector<std::string> its = arguments;
      its.insert(its.end(), {"--role", node_role_name(role)});
      MILLRACE_TRY_VOID(up.add(role, std::move(its)));
    }
  for (size_t i = store.empty() ? 0 : 1; i < up.nodes.size(); ++i)
    MILLRACE_TRY_VOID(up.nodes[i]->wait_ready(kReadySeconds));
  return up;
}

void print_up(const UpFlags& flags, const UpNodes& up, const std::string& router) {
  if (flags.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (size_t i = 0; i < up.nodes.size(); ++i)
      list.push_back({{"name", fmt::format("node-{}", i + 1)},
                      {"role", node_role_name(up.roles[i])},
                      {"pid", up.nodes[i]->pid()},
                      {"url", up.nodes[i]->address().url()}});
    print_json_line({{"router", router}, {"nodes", std::move(list)}});
  } else {
    fmt::print("millrace: {} on {} nodes at {}\n", flags.model, up.nodes.size(), router);
    for (size_t i = 0; i < up.nodes.size(); ++i)
      fmt::print("  node-{}  {:7}  {}  process {}\n", i + 1, node_role_name(up.roles[i]), up.nodes[i]->address().url(),
                 up.nodes[i]->pid());
  }
  std::fflush(stdout);
}

// Starts nodes that have ended again, on their ports.
void restart_lost(std::vector<std::unique_ptr<LocalNode>>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]->running()) continue;
    const auto started = nodes[i]->start();
    std::fprintf(stderr, "millrace: node-%zu has ended; %s\n", i + 1,
                 started.ok() ? "it is started again" : started.error().message.c_str());
  }
}

Result<int> run_up(const UpFlags& flags) {
  MILLRACE_TRY(RouterOptions options, options_of(flags.router));
  ServeSignals signals;
  MILLRACE_TRY_VOID(signals.start());
  MILLRACE_TRY(const auto folder, KeyFolder::create());
  MILLRACE_TRY(UpNodes up, start_nodes(flags, folder->file()));
  auto& nodes = up.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) options.nodes.push_back({nodes[i]->address(), up.roles[i]});
  options.table.key = folder->key();
  MILLRACE_TRY(auto router, ClusterRouter::start(std::move(options), flags.router.http));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto all_ready = [&] {
    const auto views = router->nodes().view();
    return std::ranges::all_of(views, [](const NodeView& one) { return one.state == NodeState::ready; });
  };
  signals.serving();
  while (!all_ready() && std::chrono::steady_clock::now() < until)
    if (signals.wait(0.05) == ServeSignals::Signal::stop) return 0;
  print_up(flags, up, url_of(flags.router.http, router->port()));
  while (signals.wait(1) != ServeSignals::Signal::stop) restart_lost(nodes);
  drain(*router, signals, flags.router.drain_seconds);
  router.reset();
  for (auto& node : nodes) node->end(SIGTERM);
  for (auto& node : nodes) node->wait(kEndSeconds);
  return 0;
}

Result<nlohmann::ordered_json> read_reply(const std::string& url, int status, const std::string& body) {
  auto json = parse_json(body);
  if (status == 200 && json.is_object()) return json;
  std::string why = fmt::format("status {}", status);
  if (json.is_object() && json.contains("error") && json["error"].is_object())
    why = json["error"].value("message", why);
  return Error::user(fmt::format("{}: {}", url, why));
}

std::vector<TableColumn> node_columns() {
  return {{.name = "NODE", .left = true},
          {.name = "STATE", .left = true},
          {.name = "ROLE", .left = true, .drops = 5},
          {.name = "RUNNING"},
          {.name = "REQUESTS", .drops = 2},
          {.name = "FAILURES", .drops = 1},
          {.name = "ADDRESS", .left = true, .drops = 3},
          {.name = "WHY", .left = true, .drops = 4}};
}

Result<int> run_status(const AskFlags& flags) {
  const std::string address = address_of(flags.url);
  MILLRACE_TRY(const HubUrl url, parse_hub_url(address + "/cluster"));
  std::string body;
  HttpGet get{
      .headers = {}, .bearer = api_key_of_environment(), .body = [&](const HttpAnswer&, std::string_view bytes) {
        body += bytes;
        return body.size() <= kMaxReplyBytes;
      }};
  auto answered = http_get(url, get);
  if (!answered.ok() && answered.error().kind == kNetworkError)
    return Error{kNetworkError, answered.error().message + "; `millrace cluster up` starts a cluster"};
  MILLRACE_TRY(const HttpAnswer answer, std::move(answered));
  MILLRACE_TRY(const auto json, read_reply(address, answer.status, body));
  if (flags.json) {
    print_json_line(json);
    return 0;
  }
  TextTable table(TableLook::plain, node_columns());
  for (const auto& node : json["nodes"])
    table.add({node.value("name", std::string()), node.value("state", std::string()), node.value("role", std::string()),
               fmt::format("{}", node.value("running", int64_t{0})),
               fmt::format("{}", node.value("requests", int64_t{0})),
               fmt::format("{}", node.value("failures", int64_t{0})), node.value("url", std::string()),
               node.value("why", std::string())});
  fmt::print("{}", table.text(table_room(flags.wide, "--json")));
  return 0;
}

Result<int> run_drain(const AskFlags& flags) {
  const std::string address = address_of(flags.url);
  MILLRACE_TRY(PostTarget target, PostTarget::parse("--url", address + "/cluster/drain", ""));
  HttpHeaders headers;
  if (const std::string key = api_key_of_environment(); !key.empty())
    headers.emplace_back("Authorization", "Bearer " + key);
  const nlohmann::ordered_json body = {{"node", flags.node}, {"drained", !flags.undo}};
  MILLRACE_TRY(const PostReply reply,
               http_post(target, headers, body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                         kReplyLimit, kMaxReplyBytes));
  MILLRACE_TRY_VOID(read_reply(address, reply.status, reply.body));
  fmt::print("{} {}\n", flags.node, flags.undo ? "receives requests again" : "receives no new requests");
  return 0;
}

void add_router_flags(CLI::App* command, RouterFlags& flags) {
  std::string listed;
  std::vector<std::string> names;
  for (const Route& route : routes()) {
    names.emplace_back(route.name);
    listed += fmt::format("{}{}: {}", listed.empty() ? "" : "; ", route.name, route.summary);
  }
  command->add_option("--host", flags.http.host, "Address to listen on")->capture_default_str();
  command->add_option("--port", flags.http.port, "Port; 0: any free port")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command->add_option("--route", flags.route, "How the node of a request is chosen. " + listed)
      ->capture_default_str()
      ->check(CLI::IsMember(names));
  command->add_option("--api-key-file", flags.key_file, "File with API keys of clients, one per line");
  command
      ->add_option("--node-timeout", flags.node_seconds,
                   "Time without an answer to questions for its health after which a node is lost")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(CLI::Range(0.3, 3600.0));
  command->add_option("--wait", flags.wait_seconds, "Time that a request waits while no node is ready, before it fails")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(CLI::Range(0.0, 3600.0));
  command->add_option("--drain-timeout", flags.drain_seconds, "Time for running answers to finish after SIGTERM")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(CLI::Range(0.0, 1e6));
}

void add_url(CLI::App* command, AskFlags& flags) {
  command->add_option("--url", flags.url, "The router: http://HOST:PORT")->capture_default_str();
}

}  // namespace

void add_cluster_command(CLI::App& app) {
  CLI::App* cluster = app.add_subcommand("cluster", "Serve models on several nodes behind one address");
  cluster->footer(kClusterExamples);
  cluster->fallthrough();
  cluster->require_subcommand(1);
  auto up = std::make_shared<UpFlags>();
  CLI::App* command =
      add_command(*cluster, "up", "Start a cluster on this machine", kUpExamples, [=] { return run_up(*up); });
  command->add_option("-m,--model", up->model, "The model of all nodes")->capture_default_str();
  command
      ->add_option("--nodes", up->nodes, "Number of nodes that do everything; default: 3, or none if there are others")
      ->check(CLI::Range(0, 256));
  command->add_option("--prefill", up->prefill, "Number of nodes that compute prompts for others")
      ->capture_default_str()
      ->check(CLI::Range(0, 256));
  command->add_option("--decode", up->decode, "Number of nodes that continue prompts that others computed")
      ->capture_default_str()
      ->check(CLI::Range(0, 256));
  command->add_option("--store", up->store, "Number of nodes that keep blocks for the others")
      ->capture_default_str()
      ->check(CLI::Range(0, 1));
  std::vector<std::string> kinds;
  for (const auto& entry : transports().entries()) kinds.push_back(entry.info.name);
  command->add_option("--transport", up->transport, "How blocks move between these nodes")
      ->capture_default_str()
      ->check(CLI::IsMember(kinds));
  command->add_option("-t,--threads", up->threads, "Threads of a node; 0: an equal share of the cores")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--node-flag", up->node_flags,
                   "A further flag of `millrace serve` for each node, as --node-flag=--memory=8G; repeatable")
      ->allow_extra_args(false);
  command->add_flag("--json", up->json, "Print one line of JSON when all nodes are ready");
  add_router_flags(command, up->router);
  auto route = std::make_shared<RouterFlags>();
  command = add_command(*cluster, "route", "Route requests to servers that run already", kRouteExamples,
                        [=] { return run_route(*route); });
  command->add_option("--node", route->nodes, "A server, HOST:PORT; repeatable")->required()->allow_extra_args(false);
  command
      ->add_option("--prefill-node", route->prefill_nodes,
                   "A server with --role prefill, which computes prompts for the others; repeatable")
      ->allow_extra_args(false);
  add_router_flags(command, *route);
  auto ask = std::make_shared<AskFlags>();
  command =
      add_command(*cluster, "status", "List the nodes of a router", kStatusExamples, [=] { return run_status(*ask); });
  add_url(command, *ask);
  command->add_flag("--json", ask->json, "Print JSON");
  add_wide_to(command, &ask->wide, node_columns());
  command =
      add_command(*cluster, "drain", "Send a node no new requests", kDrainExamples, [=] { return run_drain(*ask); });
  command->add_option("node", ask->node, "A name of `millrace cluster status`")->required();
  command->add_flag("--undo", ask->undo, "Send it requests again");
  add_url(command, *ask);
}

}  // namespace millrace
