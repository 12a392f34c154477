// The C interface's engines and streams.
#include <fmt/format.h>

#include <cstddef>
#include <limits>

#include "capi/chat_json.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "run/language_model.h"
#include "run/model_sampling.h"

namespace millrace {
namespace {

// The bytes of version 1 end with these members.
constexpr size_t kFirstRequestBytes = offsetof(millrace_request, user_data) + sizeof(void*);
constexpr size_t kFirstEventBytes = offsetof(millrace_event, decode_seconds) + sizeof(double);

Result<void> create(const millrace_model* model, const millrace_option* options, size_t count,
                    millrace_engine** engine) {
  if (!engine) return null_argument("engine");
  *engine = nullptr;
  if (!model) return null_argument("model");
  MILLRACE_TRY(const GivenOptions given, given_options(options, count));
  MILLRACE_TRY(CEngineOptions chosen, engine_options(given));
  auto shared = std::make_shared<SharedEngine>(chosen.unread_events);
  shared->max_open_streams = chosen.open_streams;
  shared->applied = std::move(chosen.applied);
  shared->model = model->model;
  for (const std::string& adapter : chosen.engine.adapters)
    shared->adapters.push_back({named_adapter(adapter).first, 1});
  MILLRACE_TRY(shared->engine, Engine::create(model->model, chosen.engine));
  shared->on_its_thread = shared->engine.get();
  *engine = new millrace_engine{std::move(shared)};
  return {};
}

// The start token, the documents' tokens, and those of the text; a document's tokens do not depend on its place.
Result<DocumentPrompt> text_prompt(std::string_view text, const LanguageModel& model, const CRequestOptions& options) {
  DocumentPrompt prompt;
  if (options.documents.empty()) {
    MILLRACE_TRY(prompt.tokens, model.encode(std::string(text), !options.no_special));
    if (prompt.tokens.empty()) return Error::user("text: is empty, and this model adds no start token");
    return prompt;
  }
  if (!options.no_special) {
    MILLRACE_TRY(prompt.tokens, model.encode("", true));
  }
  std::vector<std::vector<TokenId>> documents;
  for (const std::string& document : options.documents) {
    MILLRACE_TRY(documents.emplace_back(), model.encode(document, false));
    if (documents.back().empty()) return Error::user(fmt::format("document {}: is empty", documents.size() - 1));
  }
  prompt.add_documents(documents);
  MILLRACE_TRY(const auto ids, model.encode(std::string(text), false));
  if (ids.empty()) return Error::user("text: is empty; documents need a text after them");
  prompt.add(ids);
  return prompt;
}

Result<DocumentPrompt> prompt_of(const millrace_request& request, const LanguageModel& model,
                                 const CRequestOptions& options) {
  if ((request.text != nullptr) + (request.tokens != nullptr) + (request.messages != nullptr) != 1)
    return Error::user("request: needs exactly one of text, tokens and messages");
  if (request.messages) return chat_prompt(model, request.messages, options.documents);
  if (request.text) return text_prompt({request.text, request.text_bytes}, model, options);
  if (!options.documents.empty())
    return Error::unsupported("document: comes before a text or in a conversation, not before tokens");
  return DocumentPrompt{.tokens = {request.tokens, request.tokens + request.token_count}, .documents = {}};
}

Result<Request> request_of(const millrace_request& given, const SharedEngine& shared, const LanguageModel& model) {
  MILLRACE_TRY(const GivenOptions options, given_options(given.options, given.option_count));
  MILLRACE_TRY(CRequestOptions chosen, request_options(options, model_sampling(*model.parts().files)));
  if (!chosen.adapters_given) chosen.request.adapters = shared.adapters;
  MILLRACE_TRY(DocumentPrompt prompt, prompt_of(given, model, chosen));
  chosen.request.prompt = std::move(prompt.tokens);
  chosen.request.documents = std::move(prompt.documents);
  return std::move(chosen.request);
}

// Counts one open stream while it exists, unless it is kept.
class OpenStream {
 public:
  explicit OpenStream(SharedEngine& shared) : shared_(shared), full_(++shared.open_streams > shared.max_open_streams) {}
  ~OpenStream() {
    if (!kept_) --shared_.open_streams;
  }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;
  bool full() const { return full_; }
  void keep() { kept_ = true; }

 private:
  SharedEngine& shared_;
  const bool full_;
  bool kept_ = false;
};

// One line; bytes that are not UTF-8, such as those of a path, become U+FFFD.
std::string techniques_text(const std::vector<AppliedTechnique>& applied) {
  return applied_json(applied).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<void> submit(millrace_engine* engine, const millrace_request* given, millrace_stream** stream) {
  if (!stream) return null_argument("stream");
  *stream = nullptr;
  if (!engine) return null_argument("engine");
  MILLRACE_TRY(const millrace_request request, read_struct(given, kFirstRequestBytes, "request"));
  SharedEngine& shared = *engine->shared;
  OpenStream open(shared);
  if (open.full())
    return Error::resource(
        fmt::format("open_streams: {} streams are open; free those that have ended", shared.max_open_streams));
  MILLRACE_TRY(Request built, request_of(request, shared, *shared.model));
  auto out = std::make_unique<millrace_stream>();
  out->shared = engine->shared;
  out->queue = std::make_shared<StreamQueue>();
  out->queue->user_data = request.user_data;
  out->queue->handle = out.get();
  out->queue->logprobs = built.sampling.logprobs >= 0;
  shared.events.add(out->queue);
  auto id = shared.engine->submit(std::move(built), [&shared, queue = out->queue](TokenEvent&& event) {
    const RequestId request_id = event.request;
    if (!shared.events.arrived(queue, std::move(event))) shared.on_its_thread->cancel(request_id);
  });
  if (!id.ok()) {
    shared.events.remove(out->queue);
    return id.error();
  }
  out->id = *id;
  open.keep();
  *stream = out.release();
  return {};
}

Result<void> cancel(millrace_stream* stream) {
  if (!stream) return null_argument("stream");
  stream->shared->cancel(stream->id);
  return {};
}

int32_t finish_code(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return MILLRACE_FINISH_NONE;
    case FinishReason::stop: return MILLRACE_FINISH_STOP;
    case FinishReason::length: return MILLRACE_FINISH_LENGTH;
    case FinishReason::cancelled: return MILLRACE_FINISH_CANCELLED;
    case FinishReason::time_limit: return MILLRACE_FINISH_TIME_LIMIT;
    case FinishReason::error: return MILLRACE_FINISH_ERROR;
  }
  return MILLRACE_FINISH_ERROR;
}

// The members point into `queue`, whose current event they describe.
millrace_event describe(StreamQueue& queue) {
  const StreamEvent& from = queue.current;
  millrace_event out{};
  out.stream = queue.handle;
  out.user_data = queue.user_data;
  out.answer = from.answer;
  out.token = from.token;
  out.text = from.text.c_str();
  out.text_bytes = from.text.size();
  out.logprob = queue.logprobs && from.token >= 0 ? from.logprob : std::numeric_limits<float>::quiet_NaN();
  out.finish = finish_code(from.finish);
  out.last = from.last ? 1 : 0;
  out.message = "";
  queue.current_top.clear();
  for (const TokenLogprob& one : from.top) queue.current_top.push_back({one.token, one.logprob});
  out.top = queue.current_top.data();
  out.top_count = queue.current_top.size();
  if (from.end && from.finish == FinishReason::error) {
    out.status = status_of(from.end->error.kind);
    out.message = from.end->error.message.c_str();
  }
  if (!from.end || !from.last) return out;
  const RequestTimings& timings = from.end->timings;
  out.prompt_tokens = timings.prompt_tokens;
  out.cached_tokens = timings.cached_tokens;
  out.generated_tokens = timings.generated_tokens;
  out.queue_seconds = timings.queue_seconds;
  out.prefill_seconds = timings.prefill_seconds;
  out.decode_seconds = timings.decode_seconds;
  return out;
}

Result<millrace_status> poll(millrace_engine* engine, millrace_stream* stream, int32_t timeout_ms,
                             millrace_event* event) {
  MILLRACE_TRY_VOID(read_struct(event, kFirstEventBytes, "event"));
  if (!engine && !stream) return Error::user("engine and stream: both are NULL; pass at least one");
  if (timeout_ms < -1) return Error::user(fmt::format("timeout_ms: must be -1 or more, is {}", timeout_ms));
  EventQueue::Deadline until;
  if (timeout_ms >= 0) until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::shared_ptr<StreamQueue> any;
  const auto outcome =
      stream ? stream->shared->events.next(*stream->queue, until) : engine->shared->events.next_of_any(until, &any);
  if (outcome == EventQueue::Outcome::timeout) return MILLRACE_TIMEOUT;
  if (outcome == EventQueue::Outcome::end) return MILLRACE_END;
  write_struct(event, describe(stream ? *stream->queue : *any));
  return MILLRACE_OK;
}

void free_stream(millrace_stream* stream) {
  stream->shared->cancel(stream->id);
  stream->shared->events.remove(stream->queue);
  --stream->shared->open_streams;
  delete stream;
}

}  // namespace
}  // namespace millrace

extern "C" {

millrace_status millrace_engine_create(const millrace_model* model, const millrace_option* options, size_t option_count,
                                       millrace_engine** engine, char** error) {
  return millrace::guarded(error, [&] { return millrace::create(model, options, option_count, engine); });
}

void millrace_engine_free(millrace_engine* engine) {
  millrace::guarded(nullptr, [&]() -> millrace::Result<void> {
    if (engine) engine->shared->stop();
    delete engine;
    return {};
  });
}

millrace_status millrace_engine_techniques(const millrace_engine* engine, char** json, char** error) {
  return millrace::guarded(error, [&]() -> millrace::Result<void> {
    if (!json) return millrace::null_argument("json");
    *json = nullptr;
    if (!engine) return millrace::null_argument("engine");
    *json = millrace::copy_for_caller(millrace::techniques_text(engine->shared->applied));
    return {};
  });
}

millrace_status millrace_submit(millrace_engine* engine, const millrace_request* request, millrace_stream** stream,
                                char** error) {
  return millrace::guarded(error, [&] { return millrace::submit(engine, request, stream); });
}

millrace_status millrace_cancel(millrace_stream* stream, char** error) {
  return millrace::guarded(error, [&] { return millrace::cancel(stream); });
}

void millrace_stream_free(millrace_stream* stream) {
  millrace::guarded(nullptr, [&]() -> millrace::Result<void> {
    if (stream) millrace::free_stream(stream);
    return {};
  });
}

millrace_status millrace_poll(millrace_engine* engine, millrace_stream* stream, int32_t timeout_ms,
                              millrace_event* event, char** error) {
  return millrace::guarded(error, [&] { return millrace::poll(engine, stream, timeout_ms, event); });
}

}  // extern "C"
