// Telemetry of a running server: metrics, health, logs, spans, recordings.
#include <fcntl.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include "server/exposition.h"
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kTelemetryPrompt = "/v1/completions";
constexpr const char* kShortRequest = R"({"prompt": "Once upon a time", "max_tokens": 8, "seed": 5})";
constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";

std::string problems_of(const Exposition& exposition) {
  std::string out;
  for (const std::string& one : exposition.problems()) out += one + "\n";
  return out;
}

std::shared_ptr<Telemetry> telemetry(TelemetryOptions options) {
  auto made = Telemetry::create(options, "stories", {"stories", "any", "f16", options.record_prompts});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(*made);
}

TEST(Telemetry, TheExpositionIsStrictlyValidAndCounts) {
  for (const char* alias : {"", "vllm", "llamacpp"}) {
    ServiceOptions service;
    service.metrics_aliases = {alias};
    LiveServer live(service);
    EXPECT_EQ(problems_of(Exposition(get(live.port(), "/metrics").body)), "") << "before any request";
    ASSERT_EQ(post(live.port(), kTelemetryPrompt, kShortRequest).status, 200);
    ASSERT_EQ(post(live.port(), kTelemetryPrompt, kShortRequest).status, 200);
    ASSERT_EQ(post(live.port(), kTelemetryPrompt, R"({"prompt": 5})").status, 400);
    ASSERT_EQ(get(live.port(), "/nowhere").status, 404);
    const Exposition after(get(live.port(), "/metrics").body);
    EXPECT_EQ(problems_of(after), "");
    const std::map<std::string, std::string> model = {{"model_name", "stories"}};
    EXPECT_EQ(
        after.value("millrace_answers_finished_total", {{"model_name", "stories"}, {"finished_reason", "length"}}), 2);
    EXPECT_EQ(after.value("millrace_errors_total", {{"class", "user"}}), 2);
    EXPECT_EQ(after.value("millrace_errors_total", {{"class", "internal"}}), 0);
    EXPECT_EQ(after.value("millrace_http_requests_total",
                          {{"handler", kTelemetryPrompt}, {"method", "POST"}, {"status", "200"}}),
              2);
    EXPECT_EQ(after.value("millrace_http_requests_total", {{"handler", kTelemetryPrompt}, {"status", "400"}}), 1);
    EXPECT_EQ(after.value("millrace_http_requests_total", {{"handler", "none"}, {"status", "404"}}), 1);
    EXPECT_EQ(after.value("millrace_tenant_generated_tokens_total"), 16);
    for (const char* name :
         {"time_to_first_token_seconds", "time_per_output_token_seconds", "request_seconds", "request_queue_seconds",
          "request_prefill_seconds", "request_decode_seconds", "request_prompt_tokens", "request_generated_tokens",
          "request_answers", "request_max_tokens"})
      EXPECT_EQ(after.value("millrace_" + std::string(name) + "_count", model), 2) << name;
    EXPECT_EQ(after.value("millrace_inter_token_latency_seconds_count", model), 14);
    EXPECT_GT(after.value("millrace_request_decode_seconds_sum", model), 0);
    EXPECT_GT(after.value("millrace_step_tokens_count", model), 0);
    EXPECT_EQ(after.value("millrace_generated_tokens_total", model), 16);
    EXPECT_GT(after.value("millrace_memory_bytes", {{"model_name", "stories"}}), 0);
    EXPECT_EQ(after.value("millrace_build_info"), 1);
    EXPECT_GT(after.value("process_resident_memory_bytes"), 1 << 20);
    EXPECT_GT(after.value("process_cpu_seconds_total"), 0);
    EXPECT_GT(after.value("process_start_time_seconds"), 1.6e9);
    EXPECT_GT(after.value("process_open_fds"), 3);
    EXPECT_GT(after.value("process_max_fds"), 3);
  }
}

// One request after the other, whose prompt is one step: a step commits one token and those that its draft got right.
TEST(Telemetry, DraftedTokensAreCounted) {
  EngineOptions engine;
  engine.drafter = "ngram:min=1,k=3";
  engine.prefix_cache = false;
  LiveServer live({}, {}, engine);
  const std::string repeats =
      R"({"prompt": "one two three, one two three, one two", "max_tokens": 40, "temperature": 0, "ignore_eos": true})";
  for (int i = 0; i < 2; ++i) ASSERT_EQ(post(live.port(), kTelemetryPrompt, repeats).status, 200);
  const Exposition after(get(live.port(), "/metrics").body);
  const double drafted = after.value("millrace_drafted_tokens_total"),
               accepted = after.value("millrace_accepted_tokens_total");
  EXPECT_GT(accepted, 10);
  EXPECT_GT(drafted, accepted);
  EXPECT_EQ(after.value("millrace_generated_tokens_total"), 80);
  EXPECT_EQ(after.value("millrace_steps_total") + accepted, 80);
  double reached = 0, kept = 0;
  for (const char* position : {"0", "1", "2"}) {
    const std::map<std::string, std::string> at = {{"model_name", "stories"}, {"position", position}};
    reached += after.value("millrace_drafts_reaching_position_total", at);
    kept += after.value("millrace_accepted_tokens_by_position_total", at);
  }
  EXPECT_EQ(reached, drafted);
  EXPECT_EQ(kept, accepted);
  EXPECT_EQ(after.value("millrace_draft_trial_steps_total"), 0) << "lengths are fixed";
  EXPECT_EQ(after.value("millrace_draft_declined_steps_total"), 0);
  EXPECT_EQ(after.value("millrace_draft_expected_gain"), 1);
}

TEST(Telemetry, WhatChosenDraftLengthsExpectIsShown) {
  EngineOptions engine;
  engine.drafter = "lookahead:w=3,n=3,g=2";
  engine.draft_length = "auto";
  LiveServer live({}, {}, engine);
  const std::string story = R"({"prompt": "Once", "max_tokens": 12, "temperature": 0, "ignore_eos": true})";
  ASSERT_EQ(post(live.port(), kTelemetryPrompt, story).status, 200);
  const Exposition after(get(live.port(), "/metrics").body);
  EXPECT_GT(after.value("millrace_draft_expected_step_time"), 0);
  EXPECT_NE(after.value("millrace_draft_expected_gain"), 1);
  EXPECT_GE(after.value("millrace_draft_trial_steps_total"), 0);
  EXPECT_GE(after.value("millrace_draft_declined_steps_total"), 0);
}

TEST(Telemetry, VllmsNamesForOurMetrics) {
  ServiceOptions service;
  service.metrics_aliases = {"vllm"};
  LiveServer live(service);
  ASSERT_EQ(post(live.port(), kTelemetryPrompt, kShortRequest).status, 200);
  const Exposition out(get(live.port(), "/metrics").body);
  for (const char* name : {"num_requests_running",
                           "num_requests_waiting",
                           "kv_cache_usage_perc",
                           "cache_config_info",
                           "num_preemptions_total",
                           "prompt_tokens_total",
                           "generation_tokens_total",
                           "prefix_cache_queries_total",
                           "prefix_cache_hits_total",
                           "request_success_total",
                           "time_to_first_token_seconds",
                           "inter_token_latency_seconds",
                           "request_time_per_output_token_seconds",
                           "e2e_request_latency_seconds",
                           "request_queue_time_seconds",
                           "request_prefill_time_seconds",
                           "request_decode_time_seconds",
                           "request_inference_time_seconds",
                           "request_prompt_tokens",
                           "request_generation_tokens",
                           "request_max_num_generation_tokens",
                           "request_params_n",
                           "request_params_max_tokens",
                           "iteration_tokens_total",
                           "kv_block_lifetime_seconds",
                           "kv_block_idle_before_evict_seconds",
                           "kv_block_reuse_gap_seconds"})
    EXPECT_TRUE(out.types().count("vllm:" + std::string(name))) << name;
  EXPECT_EQ(out.types().at("vllm:iteration_tokens_total"), "histogram");
  EXPECT_EQ(out.value("vllm:generation_tokens_total", {{"model_name", "stories"}, {"engine", "0"}}), 8);
  EXPECT_EQ(out.value("vllm:request_success_total", {{"finished_reason", "length"}}), 1);
  EXPECT_TRUE(std::isnan(out.value("vllm:request_success_total", {{"finished_reason", "time_limit"}})));
  EXPECT_EQ(out.value("vllm:time_to_first_token_seconds_bucket", {{"le", "2560"}}), 1);
  EXPECT_EQ(out.value("http_requests_total", {{"handler", kTelemetryPrompt}}), 1);
}

TEST(Telemetry, AReaderWhoLeavesIsCounted) {
  LiveServer live;
  {
    Client client(live.port());
    client.post(kTelemetryPrompt, R"({"prompt": "Once", "max_tokens": -1, "ignore_eos": true, "stream": true})");
    ASSERT_EQ(client.head().status, 200);
  }
  ASSERT_TRUE(comes_true([&] {
    return Exposition(get(live.port(), "/metrics").body).value("millrace_http_requests_total", {{"status", "499"}}) ==
           1;
  }));
  EXPECT_EQ(Exposition(get(live.port(), "/metrics").body).value("millrace_errors_total", {{"class", "cancelled"}}), 1);
}

std::string long_prompt(Engine& engine) {
  std::string out = R"({"max_tokens": 1, "prompt": [1)";
  for (int64_t i = 0; i < engine.context() - 8; ++i) out += ",300";
  return out + "]}";
}

TEST(Telemetry, ALongPrefillIsAliveAndReady) {
  EngineOptions engine;
  engine.batch_tokens = 16;
  engine.prefix_cache = false;
  LiveServer live({}, {}, engine);
  Client client(live.port());
  client.post(kTelemetryPrompt, long_prompt(live.engine()));
  ASSERT_TRUE(comes_true([&] { return live.engine().stats().prompt_tokens > 0; }));
  EXPECT_EQ(get(live.port(), "/health/live").status, 200);
  EXPECT_EQ(get(live.port(), "/health/ready").status, 200);
  EXPECT_EQ(client.response().status, 200);
}

TEST(Telemetry, AnEngineThatIsStuckIsNotAlive) {
  ServiceOptions service;
  service.stuck_seconds = 1e-12;  // any step takes longer
  EngineOptions engine;
  engine.prefix_cache = false;
  LiveServer live(service, {}, engine);
  EXPECT_EQ(get(live.port(), "/health/live").status, 200);  // nothing runs
  Client client(live.port());
  client.post(kTelemetryPrompt, R"({"prompt": "Once", "max_tokens": -1, "ignore_eos": true, "stream": true})");
  ASSERT_EQ(client.head().status, 200);
  EXPECT_TRUE(comes_true([&] { return get(live.port(), "/health/live").status == 503; }));
  EXPECT_TRUE(comes_true([&] { return get(live.port(), "/health/ready").status == 503; }));
}

TEST(Telemetry, WaitingForAStepCountsAsQueue) {
  LiveServer live;
  ASSERT_EQ(post(live.port(), kTelemetryPrompt, kShortRequest).status, 200);
  const Exposition out(get(live.port(), "/metrics").body);
  const double ttft = out.value("millrace_time_to_first_token_seconds_sum"),
               queue = out.value("millrace_request_queue_seconds_sum"),
               prefill = out.value("millrace_request_prefill_seconds_sum");
  EXPECT_GT(queue, 0);
  EXPECT_GT(prefill, 0);
  EXPECT_NEAR(ttft, queue + prefill, 1e-9);
  EXPECT_LE(ttft + out.value("millrace_request_decode_seconds_sum"), out.value("millrace_request_seconds_sum"));
}

TEST(Telemetry, AStreamThatTheServerCutsIsLoggedAsCutWithItsTokens) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    ServiceOptions service;
    service.telemetry = telemetry({.log = {.format = "json", .descriptor = ends[1]}});
    auto live = std::make_unique<LiveServer>(service);
    Client client(live->port());
    client.post(kTelemetryPrompt, R"({"prompt": "One day", "max_tokens": -1, "ignore_eos": true, "stream": true})");
    ASSERT_EQ(client.head().status, 200);
    ASSERT_FALSE(client.chunk().empty());
    ASSERT_FALSE(client.chunk().empty());
    live.reset();  // while the client still reads
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof(bytes))) > 0;)
    text.append(bytes, static_cast<size_t>(count));
  ::close(ends[0]);
  const Json line = Json::parse(text.substr(0, text.find('\n')), nullptr, false);
  EXPECT_EQ(line["status"], 503) << text;
  EXPECT_EQ(line["error"], "draining") << text;
  EXPECT_GT(line["generated_tokens"], 0) << text;
  EXPECT_EQ(line["finish_reason"], "cancelled") << text;
}

TEST(Telemetry, OneLogLineARequest) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    ServiceOptions service;
    service.telemetry = telemetry({.log = {.format = "json", .descriptor = ends[1]}});
    LiveServer live(service);
    ASSERT_EQ(post(live.port(), kTelemetryPrompt, kShortRequest, "X-Request-Id: mine\r\n").status, 200);
    ASSERT_EQ(post(live.port(), kTelemetryPrompt, R"({"prompt": "secret words", "temperature": -1})").status, 400);
    Client client(live.port());
    client.post(kTelemetryPrompt, R"({"prompt": "secret words", "max_tokens": 4, "stream": true})");
    EXPECT_EQ(client.response().status, 200);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof(bytes))) > 0;)
    text.append(bytes, static_cast<size_t>(count));
  ::close(ends[0]);
  std::vector<Json> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(Json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  ASSERT_EQ(lines.size(), 3u) << text;
  EXPECT_EQ(lines[0]["request_id"], "mine");
  EXPECT_EQ(lines[0]["path"], kTelemetryPrompt);
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["model"], "stories");
  EXPECT_EQ(lines[0]["generated_tokens"], 8);
  EXPECT_GT(lines[0]["prompt_tokens"], 0);
  EXPECT_GT(lines[0]["ttft_seconds"], 0);
  EXPECT_GE(lines[0]["seconds"], lines[0]["ttft_seconds"]);
  EXPECT_EQ(lines[0]["finish_reason"], "length");
  EXPECT_EQ(lines[0]["seed"], 5);
  EXPECT_EQ(lines[1]["status"], 400);
  EXPECT_EQ(lines[1]["error"], "bad_request");
  EXPECT_EQ(lines[1]["level"], "warn");
  EXPECT_EQ(lines[2]["stream"], true);
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

// A collector of spans: an HTTP server of our own that keeps the bodies.
struct Collector {
  std::mutex mutex;
  std::vector<Json> bodies;
  int status = 200;
  std::unique_ptr<HttpServer> http;

  Collector() {
    HttpLimits limits;
    limits.port = 0;
    limits.io_threads = 1;
    HttpHandler handler{[](const HttpRequest&) { return std::nullopt; },
                        [this](HttpRequest request, Exchange exchange) {
                          std::lock_guard lock(mutex);
                          EXPECT_EQ(request.path, "/v1/traces");
                          EXPECT_EQ(request.header("content-type"), "application/json");
                          bodies.push_back(Json::parse(request.body, nullptr, false));
                          exchange.reply({.status = status, .body = "{}"});
                        },
                        [](const HttpRequest&, int code, const std::string&) { return HttpReply{.status = code}; }};
    http = std::move(*HttpServer::start(limits, std::move(handler)));
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(http->port()) + "/v1/traces"; }
  std::vector<Json> spans() {
    std::lock_guard lock(mutex);
    std::vector<Json> out;
    for (const Json& body : bodies)
      for (const Json& resource : body["resourceSpans"])
        for (const Json& scope : resource["scopeSpans"])
          for (const Json& span : scope["spans"]) out.push_back(span);
    return out;
  }
};

const Json* attribute(const Json& span, const std::string& key) {
  for (const Json& one : span["attributes"])
    if (one["key"] == key) return &one["value"];
  return nullptr;
}

TEST(Telemetry, SpansReachTheCollectorUnderTheCallersTrace) {
  Collector collector;
  ServiceOptions service;
  service.telemetry = telemetry({.log = {.level = "off"}, .otlp = {.endpoint = collector.url()}});
  LiveServer live(service);
  const std::string parent = std::string("traceparent: 00-") + kTrace + "-00f067aa0ba902b7-01\r\n";
  const Response answer = post(live.port(), kTelemetryPrompt, kShortRequest, parent);
  ASSERT_EQ(answer.status, 200);
  const auto trace = parse_traceparent(answer.headers.at("traceresponse"));
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->trace_id, kTrace);
  ASSERT_TRUE(comes_true([&] { return collector.spans().size() >= 4; }));
  const auto spans = collector.spans();
  std::map<std::string, Json> by_name;
  for (const Json& span : spans) by_name[span["name"]] = span;
  ASSERT_TRUE(by_name.count("text_completion stories"));
  const Json& request = by_name["text_completion stories"];
  EXPECT_EQ(request["traceId"], kTrace);
  EXPECT_EQ(request["spanId"], trace->span_id);
  EXPECT_EQ(request["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ((*attribute(request, "gen_ai.usage.output_tokens"))["intValue"], "8");
  EXPECT_EQ((*attribute(request, "gen_ai.request.seed"))["intValue"], "5");
  EXPECT_EQ((*attribute(request, "http.response.status_code"))["intValue"], "200");
  EXPECT_EQ((*attribute(request, "gen_ai.response.finish_reasons"))["arrayValue"]["values"][0]["stringValue"],
            "length");
  const auto time = [](const Json& span, const char* key) { return std::stoll(span[key].get<std::string>()); };
  for (const char* part : {"queue", "prefill", "decode"}) {
    ASSERT_TRUE(by_name.count(part)) << part;
    EXPECT_EQ(by_name[part]["parentSpanId"], trace->span_id);
    EXPECT_GE(time(by_name[part], "startTimeUnixNano"), time(request, "startTimeUnixNano")) << part;
    EXPECT_LE(time(by_name[part], "endTimeUnixNano"), time(request, "endTimeUnixNano")) << part;
  }
  EXPECT_EQ(by_name["queue"]["endTimeUnixNano"], by_name["prefill"]["startTimeUnixNano"]);
  EXPECT_EQ(by_name["prefill"]["endTimeUnixNano"], by_name["decode"]["startTimeUnixNano"]);
  EXPECT_TRUE(comes_true(
      [&] { return Exposition(get(live.port(), "/metrics").body).value("millrace_spans_exported_total") >= 4; }));
}

TEST(Telemetry, AnInvalidTraceIsIgnored) {
  LiveServer plain;
  const auto answered = [&](const std::string& headers) { return get(plain.port(), "/v1/models", headers).headers; };
  EXPECT_TRUE(answered(std::string("traceparent: 00-") + kTrace + "-00f067aa0ba902b7-00\r\n").count("traceresponse"));
  EXPECT_FALSE(answered("").count("traceresponse"));
  EXPECT_FALSE(answered("traceparent: 00-bad\r\n").count("traceresponse"));
  const std::string good = std::string("traceparent: 00-") + kTrace + "-00f067aa0ba902b7-01\r\n";
  EXPECT_FALSE(answered(good + good).count("traceresponse"));
}

TEST(Telemetry, UnsampledTracesAreNotSentAndFailuresAreCounted) {
  Collector collector;
  collector.status = 503;
  ServiceOptions service;
  service.telemetry = telemetry({.log = {.level = "off"}, .otlp = {.endpoint = collector.url()}});
  LiveServer live(service);
  ASSERT_EQ(post(live.port(), kTelemetryPrompt, kShortRequest,
                 std::string("traceparent: 00-") + kTrace + "-00f067aa0ba902b7-00\r\n")
                .status,
            200);
  ASSERT_EQ(post(live.port(), kTelemetryPrompt, kShortRequest).status, 200);
  EXPECT_TRUE(comes_true([&] { return service.telemetry->counts().spans_dropped >= 4; }));
  for (const Json& span : collector.spans()) EXPECT_NE(span["traceId"], kTrace);
  EXPECT_EQ(service.telemetry->counts().spans_exported, 0);
}

TEST(Telemetry, InvalidEndpointsAreRefused) {
  EXPECT_EQ(SpanExporter::create({.endpoint = "https://localhost/v1/traces", .ca_file = "/nonexistent"}).error().kind,
            ErrorKind::corrupt);
  for (const char* bad : {"", "localhost:4318", "http://", "http://host:0/", "http://host:99999/", "http://user@host/",
                          "http://a b/", "http://host:4x/"})
    EXPECT_EQ(SpanExporter::create({.endpoint = bad}).error().kind, ErrorKind::user) << bad;
}

TEST(Telemetry, RecordedAnswersAreTheEnginesOwn) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "telemetry_recording.jsonl").string();
  {
    ServiceOptions service;
    service.telemetry = telemetry({.log = {.level = "off"}, .record = path, .record_prompts = true});
    LiveServer live(service);
    service.telemetry.reset();
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i)
      clients.emplace_back([&, i] {
        const std::string seed = i % 2 ? "" : ", \"seed\": " + std::to_string(i);
        EXPECT_EQ(post(live.port(), kTelemetryPrompt,
                       R"({"prompt": ["Once upon a time", "One day"], "max_tokens": 12, "n": 2, "temperature": 1)" +
                           seed + "}")
                      .status,
                  200);
        EXPECT_EQ(post(live.port(), "/api/chat",
                       R"({"messages": [{"role": "user", "content": "Hello"}], "options": {"num_predict": 6}})")
                      .status,
                  200);
      });
    for (std::thread& client : clients) client.join();
    Client leaver(live.port());
    leaver.post(kTelemetryPrompt, R"({"prompt": "Once", "max_tokens": -1, "ignore_eos": true, "stream": true})");
    ASSERT_EQ(leaver.head().status, 200);
    leaver.leave();
    ASSERT_TRUE(comes_true([&] {
      return Exposition(get(live.port(), "/metrics").body).value("millrace_errors_total", {{"class", "cancelled"}}) ==
             1;
    }));
  }
  const auto recording = read_recording(path);
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  ASSERT_EQ(recording->requests.size(), 13u);
  auto engine = Engine::create(shipped_model(), {.threads = 1});
  int64_t broken = 0;
  for (const RecordedRequest& one : recording->requests) {
    Request request = one.request;
    std::vector<std::vector<TokenId>> again(one.answers.size());
    ASSERT_EQ(static_cast<int64_t>(again.size()), request.n);
    if (one.answers[0].finish == FinishReason::cancelled) {
      ++broken;
      if (one.answers[0].tokens == 0) continue;
      request.max_tokens = one.answers[0].tokens;
    }
    auto stream = (*engine)->submit(request);
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    while (const auto event = (*stream)->next())
      if (counts_as_answer(*event)) again[static_cast<size_t>(event->answer)].push_back(event->token);
    for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(token_digest(again[i]), one.answers[i].digest) << one.id;
  }
  EXPECT_EQ(broken, 1);
}

}  // namespace
}  // namespace millrace
