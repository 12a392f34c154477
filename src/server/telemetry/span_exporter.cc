#include "server/telemetry/span_exporter.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/json.h"

namespace millrace {
namespace {

using std::chrono::nanoseconds;

constexpr size_t kMaxSpans = 8192, kSpanBatch = 512;
constexpr auto kLinger = std::chrono::milliseconds(500);
constexpr size_t kMaxReply = 64 << 10;
constexpr int kServerSpan = 2, kInternalSpan = 1;

Json attribute(const char* key, const std::string& text) { return {{"key", key}, {"value", {{"stringValue", text}}}}; }
Json attribute(const char* key, int64_t number) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(number)}}}};
}  // OTLP's JSON encodes 64-bit integers as strings
Json attribute(const char* key, double number) { return {{"key", key}, {"value", {{"doubleValue", number}}}}; }

Json span(const RequestFacts& f, const std::string& id, const std::string& parent, const std::string& name, int kind,
          int64_t from_ns, int64_t to_ns) {
  Json out = {{"traceId", f.trace.trace_id}, {"spanId", id}};
  if (!parent.empty()) out["parentSpanId"] = parent;
  out["name"] = name;
  out["kind"] = kind;
  out["startTimeUnixNano"] = std::to_string(from_ns);
  out["endTimeUnixNano"] = std::to_string(std::max(from_ns, to_ns));
  return out;
}

const char* operation_of(const std::string& path) {
  if (path.find("embed") != std::string::npos) return "embeddings";
  if (path.find("chat") != std::string::npos || path.find("messages") != std::string::npos ||
      path.find("responses") != std::string::npos)
    return "chat";
  return "text_completion";
}

// The attributes of OpenTelemetry's conventions for generative AI.
Json generation_attributes(const RequestFacts& f) {
  Json out =
      Json::array({attribute("gen_ai.operation.name", std::string(operation_of(f.handler))),
                   attribute("gen_ai.system", std::string("millrace")), attribute("gen_ai.request.model", f.model),
                   attribute("gen_ai.response.model", f.model), attribute("gen_ai.response.id", f.answer_id),
                   attribute("gen_ai.request.max_tokens", f.parameters.max_tokens),
                   attribute("gen_ai.request.temperature", f.parameters.temperature),
                   attribute("gen_ai.request.top_p", f.parameters.top_p),
                   attribute("gen_ai.request.top_k", static_cast<double>(f.parameters.top_k)),
                   attribute("gen_ai.request.choice.count", f.parameters.answers),
                   attribute("gen_ai.usage.input_tokens", f.prompt_tokens),
                   attribute("gen_ai.usage.output_tokens", f.generated_tokens),
                   attribute("gen_ai.usage.cache_read.input_tokens", f.cached_tokens)});
  if (f.parameters.seed <= static_cast<uint64_t>(INT64_MAX))
    out.push_back(attribute("gen_ai.request.seed", static_cast<int64_t>(f.parameters.seed)));
  if (f.timings.first_token_seconds > 0)
    out.push_back(attribute("gen_ai.server.time_to_first_token", f.timings.first_token_seconds));
  Json reasons = Json::array();
  for (const std::string& reason : f.finish_reasons) reasons.push_back({{"stringValue", reason}});
  out.push_back(
      {{"key", "gen_ai.response.finish_reasons"}, {"value", {{"arrayValue", {{"values", std::move(reasons)}}}}}});
  return out;
}

int64_t ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

std::vector<std::string> spans_of(const RequestFacts& f) {
  // Converts steady-clock times to wall-clock times with the offset at the request's arrival.
  const int64_t wall = std::chrono::duration_cast<nanoseconds>(f.began_at.time_since_epoch()).count();
  const int64_t steady = std::chrono::duration_cast<nanoseconds>(f.began.time_since_epoch()).count();
  std::vector<std::string> out;
  const std::string name = f.generates ? fmt::format("{} {}", operation_of(f.handler), f.model)
                                       : fmt::format("{} {}", f.method.substr(0, 20), f.handler);
  Json request =
      span(f, f.trace.span_id, f.parent ? f.parent->span_id : "", name, kServerSpan, wall, wall + ns(f.seconds));
  Json attributes = f.generates ? generation_attributes(f) : Json::array();
  attributes.push_back(attribute("http.request.method", f.method.substr(0, 20)));
  attributes.push_back(attribute("url.path", f.path.substr(0, 256)));
  attributes.push_back(attribute("http.route", f.handler));
  attributes.push_back(attribute("http.response.status_code", static_cast<int64_t>(f.status)));
  attributes.push_back(attribute("millrace.request_id", f.id));
  if (!f.tenant.empty()) attributes.push_back(attribute("millrace.tenant", f.tenant));
  const std::string error = !f.error.empty()  ? f.error
                            : f.gone          ? "cancelled"
                            : f.status >= 500 ? std::to_string(f.status)
                                              : "";
  if (!error.empty()) {
    attributes.push_back(attribute("error.type", error));
    request["status"] = {{"code", 2}, {"message", f.error_message.substr(0, 500)}};
  }
  request["attributes"] = std::move(attributes);
  out.push_back(to_text(request));
  if (f.finished_ns == 0) return out;
  int64_t at = wall + (f.finished_ns - steady) -
               ns(f.timings.queue_seconds + f.timings.prefill_seconds + f.timings.decode_seconds);
  const std::pair<const char*, double> parts[] = {
      {"queue", f.timings.queue_seconds}, {"prefill", f.timings.prefill_seconds}, {"decode", f.timings.decode_seconds}};
  for (const auto& [part, seconds] : parts) {
    if (seconds <= 0) continue;
    Json one = span(f, new_span_id(), f.trace.span_id, part, kInternalSpan, at, at + ns(seconds));
    if (part == parts[1].first)
      one["attributes"] = Json::array({attribute("gen_ai.usage.input_tokens", f.timings.prompt_tokens),
                                       attribute("millrace.cached_tokens", f.timings.cached_tokens)});
    if (part == parts[2].first)
      one["attributes"] = Json::array({attribute("gen_ai.usage.output_tokens", f.timings.generated_tokens),
                                       attribute("millrace.preemptions", f.timings.preemptions)});
    out.push_back(to_text(one));
    at += ns(seconds);
  }
  return out;
}

Result<std::unique_ptr<SpanExporter>> SpanExporter::create(const OtlpSettings& settings, const std::string& version) {
  MILLRACE_TRY(const PostTarget target,
               PostTarget::parse("otlp endpoint", settings.endpoint, "/v1/traces", settings.ca_file));
  auto exporter = std::unique_ptr<SpanExporter>(new SpanExporter());
  exporter->target_ = target;
  exporter->settings_ = settings;
  exporter->version_ = version;
  exporter->outbox_ = std::make_unique<Outbox>(
      kMaxSpans, kSpanBatch, kLinger, [e = exporter.get()](const std::vector<std::string>& spans) { e->send(spans); });
  return exporter;
}

void SpanExporter::request(const RequestFacts& facts) {
  for (std::string& one : spans_of(facts)) outbox_->put(std::move(one));
}

void SpanExporter::send(const std::vector<std::string>& spans) {
  Json resource = {{"attributes", Json::array({attribute("service.name", std::string("millrace")),
                                               attribute("service.version", version_)})}};
  std::string body = "{\"resourceSpans\":[{\"resource\":" + to_text(resource) +
                     ",\"scopeSpans\":[{\"scope\":{\"name\":\"millrace\"},\"spans\":[";
  for (size_t i = 0; i < spans.size(); ++i) body += (i ? "," : "") + spans[i];
  body += "]}]}]}";
  bool taken = false;
  try {
    const auto reply = http_post(target_, settings_.headers, body, settings_.timeout, kMaxReply);
    taken = reply.ok() && reply->status >= 200 && reply->status < 300;
  } catch (const std::exception&) {  // out of memory
  }
  (taken ? exported_ : failed_) += static_cast<int64_t>(spans.size());
}

}  // namespace millrace
