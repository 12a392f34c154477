#include "server/generation/program_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "program/program_json.h"
#include "server/generation/answer.h"
#include "server/http/answer_taker.h"
#include "server/service.h"

namespace millrace {
namespace {

constexpr const char* kPing = ": ping\n\n";
constexpr double kLeastSeconds = 1e-3;  // of a timeout that has nearly passed

void set_constraint(const Constraint& constraint, Json& body) {
  switch (constraint.kind) {
    case Constraint::Kind::regex: body["guided_regex"] = constraint.text; return;
    case Constraint::Kind::json_schema: body["guided_json"] = parse_json(constraint.text); return;
    case Constraint::Kind::json_object: body["response_format"] = {{"type", "json_object"}}; return;
    case Constraint::Kind::choice: body["guided_choice"] = constraint.choices; return;
    default: return;  // check_program() and the reader let no other kind through
  }
}

ErrorKind error_kind_of(int status) {
  if (status == 429 || status == 503) return ErrorKind::resource;
  return status >= 400 && status < 500 ? ErrorKind::user : ErrorKind::internal;
}

// The value at a path of keys; null if one is missing.
const Json& value_at(const Json& json, std::initializer_list<const char*> keys) {
  static const Json none;
  const Json* at = &json;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return none;
    at = &(*at)[key];
  }
  return *at;
}

int64_t count_at(const Json& json, std::initializer_list<const char*> keys) {
  const Json& value = value_at(json, keys);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

// Both APIs' log-probabilities of the tokens.
std::vector<float> logprobs_of(const Json& choice) {
  std::vector<float> out;
  if (const Json& content = value_at(choice, {"logprobs", "content"}); content.is_array())
    for (const Json& token : content) out.push_back(token.value("logprob", 0.0F));
  if (const Json& tokens = value_at(choice, {"logprobs", "token_logprobs"}); tokens.is_array())
    for (const Json& token : tokens)
      if (token.is_number()) out.push_back(token.get<float>());
  return out;
}

Result<GenerationOutcome> outcome_of(const HttpReply& reply) {
  const Json body = parse_json(reply.body, kMaxOwnJsonDepth);
  if (reply.status != 200) {
    const Json& message = value_at(body, {"error", "message"});
    return Error{error_kind_of(reply.status),
                 message.is_string() ? message.get<std::string>() : fmt::format("status {}", reply.status)};
  }
  const Json& choices = value_at(body, {"choices"});
  if (!choices.is_array() || choices.empty()) return Error::internal("an answer without choices");
  const Json& choice = choices[0];
  GenerationOutcome out;
  for (const Json* text : {&value_at(choice, {"text"}), &value_at(choice, {"message", "content"})})
    if (text->is_string()) out.text = text->get<std::string>();
  out.logprobs = logprobs_of(choice);
  out.prompt_tokens = count_at(body, {"usage", "prompt_tokens"});
  out.cached_tokens = count_at(body, {"usage", "prompt_tokens_details", "cached_tokens"});
  out.generated_tokens = count_at(body, {"usage", "completion_tokens"});
  if (const Json& finish = value_at(choice, {"finish_reason"}); finish.is_string()) out.finish = finish;
  return out;
}

}  // namespace

// The answer to one generation.
class ProgramCall::StepTaker final : public AnswerTaker, public std::enable_shared_from_this<StepTaker> {
 public:
  StepTaker(std::shared_ptr<ProgramCall> call, Done done) : call_(std::move(call)), done_(std::move(done)) {}

  void reply(HttpReply reply) override {
    post([self = shared_from_this(), reply = std::move(reply)] { self->call_->received(self, reply); });
  }
  void end(HttpReply whole, std::string) override { reply(std::move(whole)); }
  void post(std::function<void()> work) override { call_->exchange_.post(std::move(work)); }
  void on_disconnect(std::function<void()> gone) override {
    post([self = shared_from_this(), gone = std::move(gone)]() mutable {
      if (self->left_) return gone();
      if (self->done_) self->gone_ = std::move(gone);
    });
  }
  // Generations of programs are not streamed.
  void begin_stream(HttpReply) override {}
  void write(std::string) override {}
  void finish(std::string) override {}
  void ping_with(HttpReply, std::string) override {}

  // On the strand.
  Done take_done() {
    gone_ = nullptr;
    return std::exchange(done_, nullptr);
  }
  void leave() {
    left_ = true;
    done_ = nullptr;
    if (gone_) std::exchange(gone_, nullptr)();
  }

 private:
  const std::shared_ptr<ProgramCall> call_;
  Done done_;  // null: answered, or left
  std::function<void()> gone_;
  bool left_ = false;
};

ProgramCall::ProgramCall(Service& service, const Dialect& dialect, Settings settings, const HttpRequest& request,
                         const Exchange& exchange)
    : service_(service),
      dialect_(dialect),
      settings_(std::move(settings)),
      exchange_(exchange),
      id_(request.header("x-request-id").empty() ? service.new_id() : std::string(request.header("x-request-id"))),
      client_(request.client),
      account_(request.account) {}

void ProgramCall::start(Service& service, const Dialect& dialect, Settings settings, Program program,
                        const ProgramVariables& given, const HttpRequest& request, const Exchange& exchange) {
  const auto self =
      std::shared_ptr<ProgramCall>(new ProgramCall(service, dialect, std::move(settings), request, exchange));
  exchange.on_disconnect([self] { self->gone(); });
  if (self->settings_.stream) {
    HttpReply head{.content_type = "text/event-stream", .headers = self->settings_.headers};
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    exchange.begin_stream(head);
    exchange.ping_with(std::move(head), kPing);
  }
  exchange.post([self, program = std::move(program), given]() mutable {
    if (self->left_) return;
    ProgramRun::Options options;
    options.at_once = self->settings_.at_once;
    if (self->settings_.stream)
      options.on_step = [call = self.get()](const StepReport& step) {
        call->exchange_.write(sse_event("step", step_json(step)));
      };
    auto run = ProgramRun::start(std::move(program), given, *self, std::move(options),
                                 [self](Result<ProgramResult> result) { self->finished(std::move(result)); });
    if (!run.ok()) return self->finished(run.error());
    self->run_ = std::move(*run);
  });
}

Json ProgramCall::body_of(const GenerationAsk& ask) const {
  const GenSettings& settings = ask.settings;
  Json body = {{"max_tokens", settings.max_tokens}, {"seed", settings.seed.value_or(0)}};
  if (const std::string& model = settings.model.empty() ? settings_.model : settings.model; !model.empty())
    body["model"] = model;
  if (ask.messages.empty()) {
    body["prompt"] = ask.text;
    if (ask.score) body["logprobs"] = 0;
  } else {
    Json& messages = body["messages"] = Json::array();
    for (const ProgramMessage& message : ask.messages)
      messages.push_back({{"role", message.role}, {"content", message.content}});
    if (!ask.text.empty()) {
      messages.push_back({{"role", "assistant"}, {"content", ask.text}});
      body["add_generation_prompt"] = false;
      body["continue_final_message"] = true;
    }
    if (ask.score) body["logprobs"] = true;
  }
  if (!settings.stop.empty()) body["stop"] = settings.stop;
  if (settings.temperature) body["temperature"] = *settings.temperature;
  if (settings.top_p) body["top_p"] = *settings.top_p;
  if (settings.min_p) body["min_p"] = *settings.min_p;
  if (settings.top_k) body["top_k"] = *settings.top_k;
  set_constraint(settings.constraint, body);
  if (settings_.priority != 0) body["priority"] = settings_.priority;
  if (settings_.timeout_seconds > 0) {
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    body["timeout"] = std::max(kLeastSeconds, settings_.timeout_seconds - spent);
  }
  return body;
}

void ProgramCall::begin(const GenerationAsk& ask, Done done) {
  const auto taker = std::make_shared<StepTaker>(shared_from_this(), std::move(done));
  open_.push_back(taker);
  HttpRequest request{.method = "POST",
                      .path = ask.messages.empty() ? "/v1/completions" : "/v1/chat/completions",
                      .query = {},
                      .headers = {{"x-request-id", fmt::format("{}-{}", id_, ++sent_)}},
                      .body = to_text(body_of(ask)),
                      .client = client_,
                      .account = account_};
  // After begin() has returned.
  exchange_.post([self = shared_from_this(), taker, request = std::move(request)]() mutable {
    self->service_.handle(std::move(request), Exchange(taker));
  });
}

void ProgramCall::received(const std::shared_ptr<StepTaker>& taker, const HttpReply& reply) {
  std::erase(open_, taker);
  if (const Done done = taker->take_done()) done(outcome_of(reply));
}

void ProgramCall::cancel_all() {
  for (const auto& taker : std::exchange(open_, {})) taker->leave();
}

void ProgramCall::finished(Result<ProgramResult> result) {
  if (!result.ok()) {
    const ApiError error = ApiError::from(result.error());
    return exchange_.end(service_.refused(dialect_, error, settings_.headers), dialect_.refuse_in_stream(error));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const Json json = program_json(*result, seconds);
  HttpReply reply{.headers = settings_.headers, .body = to_text(json)};
  if (!settings_.stream) return exchange_.reply(std::move(reply));
  exchange_.finish(sse_event("result", json));
}

void ProgramCall::gone() {
  left_ = true;
  if (run_) run_->cancel();
}

}  // namespace millrace
