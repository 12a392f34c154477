#include "server/generation/generation.h"

#include <algorithm>
#include <utility>

#include "server/access/key_account.h"
#include "server/generation/prompt_reads.h"
#include "server/generation/prompt_rows.h"
#include "server/service.h"

namespace millrace {
namespace {

constexpr size_t kReplyPartBytes = 64 << 10;  // of a reply that is written in parts

}  // namespace

Generation::Generation(Service& service, const Endpoint& endpoint, GenerationRequest params, HttpHeaders headers,
                       const Exchange& exchange)
    : service_(service),
      endpoint_(endpoint),
      format_(*endpoint.format),
      exchange_(exchange),
      headers_(std::move(headers)),
      began_(std::chrono::steady_clock::now()) {
  if (params.served) answer_.model = params.served->model.get();
  if (params.id.empty()) params.id = service.new_id();
  answer_.id = format_.id_prefix + params.id;
  answer_.model_name = !params.adapter.empty() ? params.adapter
                       : params.served         ? params.served->name()
                                               : params.model;  // an unload request needs no model
  answer_.created = params.created;
  if (answer_.created == 0)
    answer_.created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const AskedPrompt& prompt : params.prompts) answer_.prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
  answer_.choices.resize(std::max<size_t>(1, params.prompts.size() * static_cast<size_t>(params.request.n)));
  last_token_ns_.resize(answer_.choices.size());
  cached_.resize(params.prompts.size());
  open_prompts_ = params.prompts.size();
  answer_.params = std::move(params);
  if (RequestFacts* facts = exchange_.facts().get()) {
    for (const auto& [name, value] : headers_)
      if (name == "X-Request-Id") facts->id = value;
    service_.telemetry().started(facts, answer_);
  }
  if (service_.telemetry().records()) recorded_.resize(answer_.choices.size());
  for (size_t i = 0; i < answer_.choices.size(); ++i) readers_.push_back(AnswerReader::create(answer_.params));
}

HttpReply Generation::stream_head(const AnswerFormat& format, HttpHeaders headers) {
  HttpReply head{.content_type = format.stream_type, .headers = std::move(headers)};
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // tells proxies not to buffer the stream
  return head;
}

void Generation::start(Service& service, const Endpoint& endpoint, GenerationRequest params, HttpHeaders headers,
                       const Exchange& exchange, std::unique_ptr<AnswerMemory::Hold> memory) {
  auto self =
      std::shared_ptr<Generation>(new Generation(service, endpoint, std::move(params), std::move(headers), exchange));
  self->memory_ = std::move(memory);
  if (self->answer_.params.only_load) return self->answer_empty();
  self->waiting_ = std::make_unique<WaitEntry>(self->answer_.params.served->wait, self->answer_.prompt_tokens,
                                               static_cast<int64_t>(self->answer_.choices.size()));
  if (const auto& used = self->answer_.params.request.adapters; !used.empty()) {
    std::vector<std::string> names;
    for (const AdapterUse& one : used) names.push_back(one.name);
    self->adapters_ = std::make_unique<AdapterActivity::Use>(service.metrics().adapters(), std::move(names));
  }
  exchange.on_disconnect([self] { self->gone(); });
  if (self->scored_top() >= 0) {
    self->score_prompts();
  } else {
    self->submit();
  }
  if (self->answer_.params.stream && *self->format_.ping)
    exchange.ping_with(stream_head(self->format_, self->headers_), self->format_.ping);
}

// The number of most likely tokens to return for each prompt token; -1: do not score the prompt.
int64_t Generation::scored_top() const {
  const GenerationRequest& params = answer_.params;
  return std::max(params.prompt_logprobs, params.echo ? params.request.sampling.logprobs : -1);
}

// The prompts' log-probabilities are computed before generation, because they come first in the response.
void Generation::score_prompts() {
  GenerationRequest& params = answer_.params;
  PromptScorer::Work work{.top = scored_top(), .share = params.share, .unwanted = unwanted_};
  if (const double limit = params.request.time_limit_seconds; limit > 0)
    work.share.until =
        began_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(limit));
  for (const AskedPrompt& prompt : params.prompts) work.prompts.push_back(prompt.tokens);
  work.done = [self = shared_from_this(), share = work.share](Result<std::vector<std::vector<ChosenToken>>> scored) {
    self->exchange_.post([self, share, scored = std::move(scored)]() mutable {
      if (self->over_) return;
      if (scored.ok()) return self->scored(std::move(*scored), share);
      self->fail(reading_error(scored.error(), share));
    });
  };
  Result<void> added;
  if (!params.queue_place) {
    auto place = take_place(params);
    if (place.ok())
      params.queue_place = std::move(*place);
    else
      added = place.error();
  }
  work.place = params.queue_place;
  if (added.ok()) added = params.served->scorer->add(std::move(work));
  if (!added.ok())
    exchange_.post([self = shared_from_this(), error = ApiError::from(added.error())] { self->fail(error); });
}

// What is left of the time limit is the answer's.
void Generation::scored(std::vector<std::vector<ChosenToken>> logprobs, const WorkShare& share) {
  if (share.late()) return fail(reading_error(Error::cancelled(""), share));
  if (share.until)
    answer_.params.request.time_limit_seconds =
        std::max(1e-3, std::chrono::duration<double>(*share.until - std::chrono::steady_clock::now()).count());
  answer_.prompt_logprobs = std::move(logprobs);
  submit();
}

void Generation::submit() {
  for (size_t i = 0; i < answer_.params.prompts.size(); ++i) {
    Request request = request_of(answer_.params, answer_.params.prompts[i]);
    auto sink = [self = shared_from_this(), i](TokenEvent&& event) {
      self->exchange_.post([self, i, event = std::move(event)]() mutable { self->take(i, std::move(event)); });
    };
    auto id = answer_.params.served->engine->submit(std::move(request), std::move(sink),
                                                    std::exchange(answer_.params.queue_place, nullptr));
    if (!id.ok())
      return exchange_.post([self = shared_from_this(), error = ApiError::from(id.error())] { self->fail(error); });
    exchange_.post([self = shared_from_this(), id = *id] {
      if (self->over_) return self->answer_.params.served->engine->cancel(id);
      self->accepted_ = true;
      self->ids_.push_back(id);
    });
  }
}

void Generation::take(size_t prompt, TokenEvent event) {
  if (over_) return;
  accepted_ = true;  // the first event may arrive before the id
  if (event.finish == FinishReason::error) return fail(ApiError::from(event.error));
  if (event.finish == FinishReason::cancelled) return fail({ApiErrorKind::draining, "the server is shutting down", ""});
  const size_t index = prompt * static_cast<size_t>(answer_.params.request.n) + static_cast<size_t>(event.answer);
  Choice& choice = answer_.choices[index];
  if (event.token >= 0) {
    int64_t& before_ns = last_token_ns_[index];
    if (before_ns == 0) note_cached(prompt, event);
    if (adapters_) adapters_->run();
    if (waiting_ && event.answer == 0 && before_ns == 0)
      waiting_->prompt_done(static_cast<int64_t>(answer_.params.prompts[prompt].tokens.size()));
    if (before_ns > 0)
      service_.metrics().token_gap(answer_.model_name, static_cast<double>(event.made_ns - before_ns) * 1e-9);
    before_ns = event.made_ns;
    if (answer_.params.use) answer_.params.use->generated(1);
    if (!recorded_.empty() && counts_as_answer(event)) recorded_[index].push_back(event.token);
  }
  Delta delta{std::move(event.text), {}, event.token, nullptr, event.finish};
  ChosenToken chosen;
  if (event.end_token) delta.token = -1;
  read_delta(index, event, delta);
  if (answer_.params.request.sampling.logprobs >= 0 && delta.token >= 0) {
    chosen = {event.token, event.logprob.logprob, std::move(event.top_logprobs), choice.last_kind};
    delta.logprob = &chosen;
  }
  if (event.finish != FinishReason::none) take_finish(prompt, event, choice);
  if (delta.token >= 0 && (answer_.params.keep_tokens || (answer_.params.return_tokens && !answer_.params.stream)))
    choice.tokens.push_back(delta.token);
  if (answer_.params.stream) {
    if (!streaming_) {
      streaming_ = true;
      HttpReply head = stream_head(format_, headers_);
      head.body = format_.begin(answer_);
      exchange_.begin_stream(std::move(head));
    }
    if (std::string bytes = format_.delta(answer_, index, delta); !bytes.empty()) exchange_.write(std::move(bytes));
    if (over_) return;  // the client was too slow and was disconnected
  } else {
    if (!readers_[index]) choice.text += delta.text;
    if (delta.logprob) choice.logprobs.push_back(std::move(chosen));
  }
  if (event.last && --open_prompts_ == 0) complete();
}

// Parses the text into pieces if needed. Calls are collected for streams too.
void Generation::read_delta(size_t index, const TokenEvent& event, Delta& delta) {
  Choice& choice = answer_.choices[index];
  if (event.token >= 0) ++choice.generated_tokens;
  if (event.end_token && event.finish == FinishReason::stop &&
      std::ranges::find(answer_.params.request.stop_tokens, event.token) != answer_.params.request.stop_tokens.end())
    choice.stop_token = event.token;
  if (!readers_[index]) {
    if (!delta.text.empty()) choice.last_kind = AnswerPiece::Kind::text;
    return;
  }
  delta.pieces = readers_[index]->read(delta.text, event.finish != FinishReason::none);
  delta.text.clear();
  bool thought = false;
  for (const AnswerPiece& piece : delta.pieces) {
    if (piece.kind == AnswerPiece::Kind::text) delta.text += piece.text;
    thought |= piece.kind == AnswerPiece::Kind::reasoning;
  }
  if (!delta.pieces.empty()) choice.last_kind = delta.pieces.back().kind;
  if (thought && event.token >= 0) ++choice.reasoning_tokens;
  take_pieces(choice, index, delta, answer_.params, !answer_.params.stream);
}

void Generation::take_finish(size_t prompt, const TokenEvent& event, Choice& choice) {
  choice.finish = event.finish;
  choice.stopped_by = event.stopped_by;
  choice.drafted_tokens = event.timings.drafted_tokens;
  choice.accepted_tokens = event.timings.accepted_tokens;
  if (waiting_) waiting_->answer_done(event.timings);
  answer_.timings = event.timings;
  answer_.generated_tokens += event.timings.generated_tokens;
  answer_.longest_tokens = std::max(answer_.longest_tokens, event.timings.generated_tokens);
  service_.telemetry().finished(exchange_.facts().get(), event);
  service_.metrics().finished(answer_, choice, event.timings);
  note_cached(prompt, event);
}

// Called at an answer's first token, so that the beginning of a stream reports it, and at its end.
void Generation::note_cached(size_t prompt, const TokenEvent& event) {
  if (event.answer != 0) return;
  answer_.cached_tokens += event.timings.cached_tokens - std::exchange(cached_[prompt], event.timings.cached_tokens);
}

void Generation::answer_empty() {
  if (!answer_.params.stream) return exchange_.reply({.headers = headers_, .body = to_text(format_.whole(answer_))});
  HttpReply head = stream_head(format_, headers_);
  head.body = format_.begin(answer_) + format_.end(answer_);
  exchange_.begin_stream(std::move(head));
  exchange_.finish();
}

void Generation::complete() {
  over_ = true;
  waiting_.reset();
  adapters_.reset();
  answer_.params.use.reset();  // before replying: the client's next request may arrive at once
  answer_.total_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  service_.metrics().answered(answer_);
  record();
  if (answer_.params.stream) return exchange_.finish(format_.end(answer_));
  if (answer_.generated_tokens == 0 && answer_.choices.front().finish == FinishReason::time_limit) {
    const ApiError late{ApiErrorKind::time_limit, "timeout: the time limit was reached before the first token",
                        "timeout"};
    return exchange_.reply(service_.refused(*endpoint_.dialect, late, headers_));
  }
  Json whole = format_.whole(answer_);
  if (whole.is_object()) add_own_facts(answer_, whole);
  if (answer_.late.empty()) return exchange_.reply({.headers = headers_, .body = to_text(whole)});
  auto text = std::make_shared<LateText>(whole, std::exchange(answer_.late, {}));  // which refers to answer_
  exchange_.reply({.headers = headers_, .more = [self = shared_from_this(), text](std::string& out) {
                     return text->next(out, kReplyPartBytes);
                   }});
}

// Before the stream has started, an error is a response with its own status; afterwards it is the stream's last event.
void Generation::fail(const ApiError& error) {
  if (over_) return;
  Telemetry::failed(exchange_.facts().get(), error);
  Telemetry::unfinished(exchange_.facts().get(), answer_);
  if (accepted_) record();
  if (!streaming_ && answer_.params.use && error.kind == ApiErrorKind::overloaded) answer_.params.use->give_back();
  cancel();
  exchange_.end(service_.refused(*endpoint_.dialect, error, headers_), endpoint_.dialect->refuse_in_stream(error));
}

void Generation::gone() {
  if (over_) return;
  service_.metrics().aborted(answer_.model_name);
  Telemetry::unfinished(exchange_.facts().get(), answer_);
  if (accepted_) record();
  cancel();
}

void Generation::record() {
  if (!recorded_.empty()) service_.telemetry().recorded(exchange_.facts().get(), answer_, recorded_);
}

void Generation::cancel() {
  over_ = true;
  waiting_.reset();
  adapters_.reset();
  answer_.params.use.reset();
  answer_.params.queue_place.reset();
  *unwanted_ = true;
  for (RequestId id : ids_) answer_.params.served->engine->cancel(id);
}

}  // namespace millrace
