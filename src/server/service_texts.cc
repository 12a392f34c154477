// Requests whose texts are read on the threads of TextWorkers: how they get there, their limits, and what ends them.
#include <algorithm>
#include <chrono>

#include "run/language_model.h"
#include "server/generation/conversation.h"
#include "server/generation/generation.h"
#include "server/generation/text_work.h"
#include "server/service.h"

namespace millrace {
namespace {

// Reading a request's texts ends after these times even without a request timeout. Real ones take milliseconds.
constexpr auto kReadingTime = std::chrono::seconds(10);
constexpr size_t kBytesPerSecond = size_t{1} << 20;  // and a further second for so much text

// Texts are tokenized one after the other: the longest counts, and of the others only the tokens that are kept.
class TextSizes {
 public:
  void add(const std::string& text) {
    longest_ = std::max(longest_, text.size());
    all_ += text.size();
  }
  void add(const Json& json) {
    if (json.is_string()) return add(json.get_ref<const std::string&>());
    if (json.is_structured())
      for (const Json& one : json) add(one);  // as deep as parse_body() allows
  }
  size_t charged_bytes() const { return longest_ + (all_ - longest_) / kPartOfTokens; }

 private:
  static constexpr size_t kPartOfTokens = 8;
  size_t longest_ = 0, all_ = 0;
};

// The texts of a request that are tokenized as they are; a conversation is charged when it is rendered.
size_t text_bytes(const GenerationRequest& params) {
  TextSizes sizes;
  sizes.add(params.prediction);
  for (const AskedPrompt& prompt : params.prompts) sizes.add(prompt.text);
  for (const std::string& document : params.documents) sizes.add(document);
  for (const std::string& word : params.bad_words) sizes.add(word);
  if (!params.infill) return sizes.charged_bytes();
  for (const InfillFile& file : params.infill->files) sizes.add(file.text);
  sizes.add(params.infill->begun);
  sizes.add(params.infill->suffix);
  return sizes.charged_bytes();
}

size_t text_bytes(const Json& body) {
  TextSizes sizes;
  sizes.add(body);
  return sizes.charged_bytes();
}

}  // namespace

// A request whose texts are to be read.
struct Service::WaitingText {
  HttpRequest request;
  std::string rest;
  Json body;
  GenerationRequest params;
  size_t bytes = 0;
};

// Pings keep a stream open meanwhile.
void Service::wait_for_texts(const Endpoint& endpoint, Call& call, const Exchange& exchange) {
  auto waiting = std::make_shared<WaitingText>();
  waiting->request = call.request;
  if (waiting->request.header("x-request-id").empty()) waiting->request.headers.emplace_back("x-request-id", new_id());
  waiting->rest = std::move(call.rest);
  if (!endpoint.format) waiting->body = std::move(call.body);  // what generates has read it
  waiting->params = std::move(call.params);
  waiting->bytes = call.body_bytes;
  waiting->params.text_work = std::make_shared<TextWork>();
  const auto cancelled = waiting->params.text_work->cancelled;
  const std::string tenant = WorkShare::of(waiting->request).tenant;
  exchange.on_disconnect([this, cancelled, tenant] {
    *cancelled = true;
    texts_->leave(tenant);
  });
  if (endpoint.format && waiting->params.stream && *endpoint.format->ping)
    exchange.ping_with(Generation::stream_head(*endpoint.format, headers(waiting->request)), endpoint.format->ping);
  TextWorkers::Work work{.tenant = tenant, .bytes = waiting->bytes, .cancelled = cancelled, .run = {}, .drop = {}};
  work.run = [this, &endpoint, waiting, exchange] {
    guarded(waiting->request, exchange, [&] { answer_texts(endpoint, *waiting, exchange); });
  };
  const auto refuse = [this, &endpoint, waiting, exchange](const ApiError& error) {
    exchange.end(refused(*endpoint.dialect, error, headers(waiting->request)),
                 endpoint.dialect->refuse_in_stream(error));
  };
  work.drop = [refuse] { refuse({ApiErrorKind::draining, "the server is shutting down", ""}); };
  if (auto added = texts_->add(std::move(work)); !added.ok()) refuse(ApiError::from(added.error()));
}

// On a thread of TextWorkers.
void Service::answer_texts(const Endpoint& endpoint, WaitingText& waiting, const Exchange& exchange) {
  GenerationRequest& params = waiting.params;
  TextWork& work = *params.text_work;
  const auto end = [&](const ApiError& error) {
    exchange.end(refused(*endpoint.dialect, error, headers(waiting.request)),
                 endpoint.dialect->refuse_in_stream(error));
  };
  params.reading_seconds = work.seconds();
  const WorkShare share = share_of(waiting.request, params);
  if (share.late())
    return end({ApiErrorKind::time_limit, "timeout: the request timed out while its prompt was being read", "timeout"});
  if (share.until) work.request_until = *share.until;
  work.until = std::chrono::steady_clock::now() + kReadingTime + std::chrono::seconds(waiting.bytes / kBytesPerSecond);
  if (!endpoint.format)
    if (auto wrong = charge_text(params, text_bytes(waiting.body))) return end(*wrong);
  Call call{*this, waiting.request, std::move(waiting.rest), std::move(waiting.body), std::move(params)};
  answer_now(endpoint, call, exchange);
}

// Makes the prompts of an answer, within the limits of params.text_work.
std::optional<ApiError> Service::read_texts(GenerationRequest& params) const {
  const auto read = [&]() -> std::optional<ApiError> {
    const LanguageModel& model = *params.served->model;
    if (auto wrong = charge_text(params, text_bytes(params))) return wrong;
    if (auto wrong = encode_prompts(params)) return wrong;
    if (auto wrong = make_bad_words(model, params)) return wrong;
    if (auto wrong = make_prediction(model, params)) return wrong;
    if (const auto over = check_work(); !over.ok()) return ApiError::from(over.error());
    return std::nullopt;
  };
  const std::shared_ptr<TextWork> work = params.text_work;
  if (!work) return read();
  const WorkScope scope(work->limits());
  auto wrong = read();
  if (wrong) wrong = work->explain(*wrong);
  params.reading_seconds = work->seconds();
  params.text_work.reset();  // and with `work` its memory
  return wrong;
}

}  // namespace millrace
