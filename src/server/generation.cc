#include "server/generation.h"

#include <algorithm>

#include "server/service.h"

namespace millrace {

Generation::Generation(Service& service, const Endpoint& endpoint, Ask ask, HttpHeaders headers, const Exchange& exchange)
    : service_(service), endpoint_(endpoint), format_(*endpoint.format), exchange_(exchange), headers_(std::move(headers)),
      began_(std::chrono::steady_clock::now()) {
  answer_.model = &service.model();
  answer_.id = format_.id_prefix + service.new_id();
  answer_.model_name = service.names().front();
  answer_.created = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const AskedPrompt& prompt : ask.prompts) answer_.prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
  answer_.choices.resize(std::max<size_t>(1, ask.prompts.size() * static_cast<size_t>(ask.request.n)));
  last_token_.resize(answer_.choices.size());
  open_prompts_ = ask.prompts.size();
  answer_.ask = std::move(ask);
  for (size_t i = 0; i < answer_.choices.size(); ++i) readers_.push_back(AnswerReader::create(answer_.ask));
}

HttpReply Generation::stream_head() const {
  HttpReply head{.content_type = format_.stream_type, .headers = headers_};
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // asks proxies not to hold it back
  return head;
}

void Generation::start(Service& service, const Endpoint& endpoint, Ask ask, HttpHeaders headers, const Exchange& exchange) {
  auto self = std::shared_ptr<Generation>(new Generation(service, endpoint, std::move(ask), std::move(headers), exchange));
  if (self->answer_.ask.only_load) return self->answer_empty();
  exchange.on_gone([self] { self->gone(); });
  if (self->scored_top() >= 0) {
    self->score_prompts();
  } else {
    self->submit();
  }
  if (self->answer_.ask.stream && *self->format_.ping) exchange.ping_with(self->stream_head(), self->format_.ping);
}

// How many of the likeliest tokens beside each of the prompt's; -1: it is not scored.
int64_t Generation::scored_top() const {
  const Ask& ask = answer_.ask;
  return std::max(ask.prompt_logprobs, ask.echo ? ask.request.sampling.logprobs : -1);
}

// The prompts' own log-probabilities come before anything is generated: an answer begins with them.
void Generation::score_prompts() {
  PromptScorer::Work work{.top = scored_top(), .unwanted = unwanted_};
  for (const AskedPrompt& prompt : answer_.ask.prompts) work.prompts.push_back(prompt.tokens);
  work.done = [self = shared_from_this()](Result<std::vector<std::vector<ChosenToken>>> scored) {
    self->exchange_.post([self, scored = std::move(scored)]() mutable {
      if (self->over_) return;
      if (!scored.ok()) return self->fail(ApiError::from(scored.error()));
      self->answer_.prompt_logprobs = std::move(*scored);
      self->submit();
    });
  };
  auto added = service_.scorer().add(std::move(work));
  if (!added.ok()) exchange_.post([self = shared_from_this(), error = ApiError::from(added.error())] { self->fail(error); });
}

void Generation::submit() {
  for (size_t i = 0; i < answer_.ask.prompts.size(); ++i) {
    Request request = answer_.ask.request;
    request.prompt = answer_.ask.prompts[i].tokens;
    auto sink = [self = shared_from_this(), i](TokenEvent&& event) {
      self->exchange_.post([self, i, event = std::move(event), now = std::chrono::steady_clock::now()]() mutable { self->take(i, std::move(event), now); });
    };
    auto id = service_.engine().submit(std::move(request), std::move(sink));
    if (!id.ok()) return exchange_.post([self = shared_from_this(), error = ApiError::from(id.error())] { self->fail(error); });
    exchange_.post([self = shared_from_this(), id = *id] {
      if (self->over_) return self->service_.engine().cancel(id);
      self->ids_.push_back(id);
    });
  }
}

void Generation::take(size_t prompt, TokenEvent event, std::chrono::steady_clock::time_point when) {
  if (over_) return;
  if (event.finish == FinishReason::error) return fail(ApiError::from(event.error));
  if (event.finish == FinishReason::cancelled) return fail({ApiErrorKind::draining, "the server is shutting down", ""});
  const size_t index = prompt * static_cast<size_t>(answer_.ask.request.n) + static_cast<size_t>(event.answer);
  Choice& choice = answer_.choices[index];
  if (event.token >= 0) {
    auto& before = last_token_[index];
    if (before.time_since_epoch().count() > 0) service_.metrics().token_gap(std::chrono::duration<double>(when - before).count());
    before = when;
  }
  Delta delta{std::move(event.text), {}, event.token, nullptr, event.finish};
  ChosenToken chosen;
  if (event.end_token) delta.token = -1;
  read_delta(index, event, delta);
  if (answer_.ask.request.sampling.logprobs >= 0 && delta.token >= 0) {
    chosen = {event.token, event.logprob.logprob, std::move(event.top_logprobs)};
    delta.logprob = &chosen;
  }
  if (event.finish != FinishReason::none) take_finish(prompt, event, choice);
  if (answer_.ask.stream) {
    if (!streaming_) {
      streaming_ = true;
      HttpReply head = stream_head();
      head.body = format_.begin(answer_);
      exchange_.begin_stream(std::move(head));
    }
    if (std::string bytes = format_.delta(answer_, index, delta); !bytes.empty()) exchange_.write(std::move(bytes));
    if (over_) return;  // the reader was too slow, and is cut
  } else {
    if (!readers_[index]) choice.text += delta.text;
    if (delta.token >= 0 && answer_.ask.return_tokens) choice.tokens.push_back(delta.token);
    if (delta.logprob) choice.logprobs.push_back(std::move(chosen));
  }
  if (event.last && --open_prompts_ == 0) complete();
}

// The text's parts, where it has some. Calls are kept of streams too.
void Generation::read_delta(size_t index, const TokenEvent& event, Delta& delta) {
  Choice& choice = answer_.choices[index];
  if (event.token >= 0) ++choice.generated_tokens;
  if (event.end_token && event.finish == FinishReason::stop && std::ranges::find(answer_.ask.request.stop_tokens, event.token) != answer_.ask.request.stop_tokens.end())
    choice.stop_token = event.token;
  if (!readers_[index]) return;
  delta.pieces = readers_[index]->read(delta.text, event.finish != FinishReason::none);
  delta.text.clear();
  bool thought = false;
  for (const AnswerPiece& piece : delta.pieces) {
    if (piece.kind == AnswerPiece::Kind::text) delta.text += piece.text;
    thought |= piece.kind == AnswerPiece::Kind::reasoning;
  }
  if (thought && event.token >= 0) ++choice.reasoning_tokens;
  take_pieces(choice, delta, answer_.ask, !answer_.ask.stream);
}

void Generation::take_finish(size_t prompt, const TokenEvent& event, Choice& choice) {
  choice.finish = event.finish;
  choice.stopped_by = event.stopped_by;
  answer_.timings = event.timings;
  answer_.generated_tokens += event.timings.generated_tokens;
  service_.metrics().finished(answer_, choice, event.timings);
  if (event.answer == 0) answer_.cached_tokens += event.timings.cached_tokens;
}

void Generation::answer_empty() {
  if (!answer_.ask.stream) return exchange_.reply({.headers = headers_, .body = to_text(format_.whole(answer_))});
  HttpReply head = stream_head();
  head.body = format_.begin(answer_) + format_.end(answer_);
  exchange_.begin_stream(std::move(head));
  exchange_.finish();
}

void Generation::complete() {
  over_ = true;
  answer_.total_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  service_.metrics().answered(answer_);
  if (answer_.ask.stream) return exchange_.finish(format_.end(answer_));
  if (answer_.generated_tokens == 0 && answer_.choices.front().finish == FinishReason::time_limit) {
    const ApiError late{ApiErrorKind::time_limit, "timeout: the request's time was over before the first token", "timeout"};
    return exchange_.reply(service_.refused(*endpoint_.dialect, late, headers_));
  }
  exchange_.reply({.headers = headers_, .body = to_text(format_.whole(answer_))});
}

// Before the first token an error has a status of its own; after it, it is the stream's last event.
void Generation::fail(const ApiError& error) {
  if (over_) return;
  cancel();
  exchange_.end(service_.refused(*endpoint_.dialect, error, headers_), endpoint_.dialect->refuse_in_stream(error));
}

void Generation::gone() {
  if (over_) return;
  service_.metrics().aborted();
  cancel();
}

void Generation::cancel() {
  over_ = true;
  *unwanted_ = true;
  for (RequestId id : ids_) service_.engine().cancel(id);
}

}  // namespace millrace
