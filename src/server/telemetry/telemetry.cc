#include "server/telemetry/telemetry.h"

#include <algorithm>

#include "server/api/endpoint.h"
#include "server/generation/prompt_rows.h"

namespace millrace {

Result<std::unique_ptr<Telemetry>> Telemetry::create(const TelemetryOptions& options, const std::string& model,
                                                     const RecordingHead& recorded) {
  auto out = std::unique_ptr<Telemetry>(new Telemetry());
  out->metrics_ = std::make_unique<Metrics>(model, options.version);
  MILLRACE_TRY_VOID(find_log_level(options.log.level));
  if (!options.otlp.endpoint.empty()) {
    MILLRACE_TRY(out->spans_, SpanExporter::create(options.otlp, options.version));
  }
  if (!options.record.empty()) {
    MILLRACE_TRY(out->recorder_, Recorder::create(options.record, recorded));
  }
  out->log_ = std::make_unique<RequestLog>(options.log);
  return out;
}

std::shared_ptr<RequestFacts> Telemetry::begin(const HttpRequest& request) {
  auto facts = std::make_shared<RequestFacts>();
  facts->method = request.method;
  facts->path = request.path;
  std::string rest;
  bool wrong_method = false;
  const Endpoint* endpoint = find_endpoint(request.method, request.path, &rest, &wrong_method);
  facts->handler = endpoint ? endpoint->path : "none";
  // Duplicate traceparent headers are invalid: ignore both.
  const auto given =
      std::ranges::count_if(request.headers, [](const auto& header) { return header.first == "traceparent"; });
  if (given == 1) facts->parent = parse_traceparent(request.header("traceparent"));
  facts->exported = spans_ && (!facts->parent || facts->parent->sampled);
  if (facts->parent || spans_) {
    facts->trace = {facts->parent ? facts->parent->trace_id : new_trace_id(), new_span_id(), facts->exported};
    facts->reply_headers.emplace_back("traceresponse", facts->trace.header());
  }
  facts->on_end = [this](RequestFacts& ended_facts) { ended(ended_facts); };
  return facts;
}

void Telemetry::refused(const HttpRequest& request, HttpReply& reply) {
  const auto facts = begin(request);
  facts->open(reply, false);
  facts->end(reply.status, false);
}

void Telemetry::ended(const RequestFacts& facts) {
  metrics_->replied(facts);
  log_->request(facts);
  if (facts.exported) spans_->request(facts);
}

void Telemetry::started(RequestFacts* facts, const Answer& answer) const {
  if (!facts) return;
  const Request& request = answer.params.request;
  facts->generates = true;
  facts->model = answer.model_name;
  facts->answer_id = answer.id;
  facts->tenant = request.tenant;
  facts->prompt_tokens = answer.prompt_tokens;
  facts->parameters = {request.max_tokens,           request.sampling.top_k, request.n,
                       request.sampling.temperature, request.sampling.top_p, request.sampling.seed};
  if (!log_->wants_prompts()) return;
  for (const AskedPrompt& prompt : answer.params.prompts) facts->prompt += prompt.text;
}

void Telemetry::finished(RequestFacts* facts, const TokenEvent& event) const {
  if (!facts) return;
  facts->timings = event.timings;
  facts->finished_ns = event.made_ns;
  facts->generated_tokens += event.timings.generated_tokens;
  if (event.answer == 0) facts->cached_tokens += event.timings.cached_tokens;
  facts->finish_reasons.emplace_back(finish_reason_name(event.finish));
}

void Telemetry::failed(RequestFacts* facts, const ApiError& error) {
  if (!facts) return;
  facts->error = error_kind_name(error.kind);
  facts->error_message = error.message;
}

void Telemetry::recorded(const RequestFacts* facts, const Answer& answer,
                         const std::vector<std::vector<TokenId>>& tokens) {
  if (!recorder_ || !facts) return;
  if (has_rows(answer.params)) {  // a recording has tokens, and those of rows are placeholders
    not_recorded_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const auto n = static_cast<size_t>(answer.params.request.n);
  for (size_t i = 0; i < answer.params.prompts.size(); ++i) {
    RecordedRequest one{.id = facts->id, .request = answer.params.request};
    one.request.prompt = answer.params.prompts[i].tokens;
    for (size_t choice = i * n; choice < (i + 1) * n; ++choice) {
      const FinishReason finish = answer.choices[choice].finish;
      one.answers.push_back(
          {.finish = finish == FinishReason::none ? FinishReason::cancelled : finish, .ids = tokens[choice]});
    }
    const auto written = recorder_->write(std::move(one), facts->began);
    const bool failed_before = recording_fails_.exchange(!written.ok());
    if (written.ok()) continue;
    not_recorded_.fetch_add(1, std::memory_order_relaxed);
    if (!failed_before)  // one line for each time that it begins to fail
      log_->event(LogLevel::error, "requests are not recorded",
                  {{"request_id", facts->id}, {"why", written.error().message}});
    return;
  }
}

void Telemetry::unfinished(RequestFacts* facts, const Answer& answer) {
  if (!facts) return;
  for (const Choice& choice : answer.choices) {
    if (choice.finish != FinishReason::none || choice.generated_tokens == 0) continue;
    facts->generated_tokens += choice.generated_tokens;
    facts->finish_reasons.emplace_back(finish_reason_name(FinishReason::cancelled));
  }
}

TelemetryCounts Telemetry::counts() const {
  TelemetryCounts out{.log_lines_dropped = log_->dropped(),
                      .requests_not_recorded = not_recorded_.load(std::memory_order_relaxed)};
  if (spans_) out.spans_exported = spans_->exported(), out.spans_dropped = spans_->dropped();
  return out;
}

}  // namespace millrace
