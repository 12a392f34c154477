#include "server/batch/line_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "server/http/answer_taker.h"
#include "server/service.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// Before a rejected line is retried.
constexpr auto kMinWait = std::chrono::milliseconds(50), kMaxWait = std::chrono::milliseconds(5000);
constexpr auto kPollInterval = std::chrono::milliseconds(50);  // for live requests waiting for the engine
constexpr int64_t kPriority = -1'000'000;                      // for policies with priorities
constexpr size_t kMaxCustomId = 256;
constexpr const char* kUrls[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses",
                                 "/v1/messages"};

// Events of the running lines, queued for the thread that runs them.
class Inbox {
 public:
  void add(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      work_.push_back(std::move(work));
    }
    wake_.notify_one();
  }
  std::deque<std::function<void()>> take() {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kPollInterval, [&] { return !work_.empty(); });
    return std::exchange(work_, {});
  }
  void close() {
    std::deque<std::function<void()>> dropped;
    std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(work_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  bool closed_ = false;
};

// A line to be retried, and when.
struct Retry {
  BatchLine line;
  Clock::time_point when;
};

// How long to wait before retrying a rejected line; nullopt: its answer is final.
std::optional<Clock::duration> wait_of(const HttpReply& reply) {
  if (reply.status != 429 && reply.status != 503 && reply.status != 529) return std::nullopt;
  int64_t seconds = 0;
  for (const auto& [name, value] : reply.headers) {
    if (name == "x-should-retry" && value == "false") return std::nullopt;  // a quota
    if (name == "Retry-After") std::from_chars(value.data(), value.data() + value.size(), seconds);
  }
  return std::clamp<Clock::duration>(std::chrono::seconds(seconds), kMinWait, kMaxWait);
}

class LineTaker final : public AnswerTaker, public std::enable_shared_from_this<LineTaker> {
 public:
  LineTaker(std::shared_ptr<Inbox> inbox, BatchLine line) : inbox_(std::move(inbox)), line_(std::move(line)) {}

  void reply(HttpReply reply) override {
    inbox_->add([self = shared_from_this(), reply = std::move(reply)]() mutable {
      self->reply_ = std::move(reply);
      self->gone_ = nullptr;
    });
  }
  void end(HttpReply whole, std::string) override { reply(std::move(whole)); }
  void post(std::function<void()> work) override { inbox_->add(std::move(work)); }
  void on_disconnect(std::function<void()> gone) override {
    inbox_->add([self = shared_from_this(), gone = std::move(gone)]() mutable {
      if (self->left_) return gone();
      if (!self->reply_) self->gone_ = std::move(gone);
    });
  }
  // Lines are never streamed.
  void begin_stream(HttpReply) override {}
  void write(std::string) override {}
  void finish(std::string) override {}
  void ping_with(HttpReply, std::string) override {}

  // Called on the thread of run().
  const std::optional<HttpReply>& answer() const { return reply_; }
  const BatchLine& line() const { return line_; }
  void leave() {
    left_ = true;
    if (gone_) std::exchange(gone_, nullptr)();
  }

 private:
  std::shared_ptr<Inbox> inbox_;
  BatchLine line_;
  std::optional<HttpReply> reply_;
  std::function<void()> gone_;
  bool left_ = false;
};

LineResult result_of(const LineTaker& taker) {
  const HttpReply& reply = *taker.answer();
  LineResult out{taker.line().custom_id, "", reply.status, parse_json(reply.body, kMaxOwnJsonDepth)};
  for (const auto& [name, value] : reply.headers)
    if (name == "X-Request-Id") out.request_id = value;
  if (out.body.is_discarded()) out.body = nullptr;
  return out;
}

}  // namespace

bool is_batch_url(const std::string& url) {
  std::string rest;
  bool wrong_method = false;
  return std::ranges::find(kUrls, url) != std::end(kUrls) && find_endpoint("POST", url, &rest, &wrong_method) &&
         !wrong_method;
}

Result<BatchLine> parse_batch_line(std::string_view text) {
  if (text.size() > kMaxLineBytes)
    return Error::user(fmt::format("has {} bytes, more than the limit of {}", text.size(), kMaxLineBytes));
  Json json;
  if (auto wrong = parse_body(std::string(text), &json)) return Error::user(wrong->message);
  const auto text_of = [&](const char* name) {
    return json.contains(name) && json[name].is_string() ? json[name].get<std::string>() : std::string();
  };
  BatchLine line{text_of("custom_id"), text_of("url"), nullptr};
  if (line.custom_id.empty() || line.custom_id.size() > kMaxCustomId)
    return Error::user(fmt::format("custom_id: must be a string of 1 to {} bytes", kMaxCustomId));
  if (json.contains("method") && json["method"] != "POST") return Error::user("method: must be POST");
  if (!is_batch_url(line.url))
    return Error::user(fmt::format("url: '{}' is not available in batches", line.url.substr(0, 200)));
  if (!json.contains("body") || !json["body"].is_object()) return Error::user("body: must be an object");
  line.body = std::move(json["body"]);
  return line;
}

std::string result_line(const LineResult& result) {
  return to_text(
      {{"id", "batch_req_" + result.request_id},
       {"custom_id", result.custom_id},
       {"response", {{"status_code", result.status}, {"request_id", result.request_id}, {"body", result.body}}},
       {"error", nullptr}});
}

std::optional<FinishedLine> parse_result_line(std::string_view text) {
  const Json json = parse_json(text, kMaxOwnJsonDepth);
  if (!json.is_object() || !json.contains("custom_id") || !json["custom_id"].is_string()) return std::nullopt;
  if (!json.contains("response") || !json["response"].is_object()) return std::nullopt;
  const Json& response = json["response"];
  if (!response.contains("status_code") || !response["status_code"].is_number_integer()) return std::nullopt;
  return FinishedLine{json["custom_id"].get<std::string>(), response["status_code"] == 200};
}

Result<void> LineRunner::run(const Next& next, const Done& done, const std::atomic<bool>& stop,
                             const std::function<bool()>& yield) {
  const auto inbox = std::make_shared<Inbox>();
  std::vector<std::shared_ptr<LineTaker>> open;
  std::deque<Retry> again;
  bool more = true;
  const auto start = [&](BatchLine line) {
    const auto taker = std::make_shared<LineTaker>(inbox, std::move(line));
    Json body = taker->line().body;
    for (const char* name : {"stream", "stream_options"}) body.erase(name);
    body["priority"] = kPriority;
    HttpRequest request{.method = "POST",
                        .path = taker->line().url,
                        .query = {},
                        .headers = {{"x-request-id", service_.new_id()}},
                        .body = to_text(body),
                        .client = "batch",
                        .account = account_};
    open.push_back(taker);
    service_.handle(std::move(request), Exchange(taker));
  };
  Result<void> out;
  const auto finish = [&](const std::shared_ptr<LineTaker>& taker) {
    if (!taker->answer() || !out.ok()) return false;
    if (const auto wait = wait_of(*taker->answer()))
      again.push_back({taker->line(), Clock::now() + *wait});
    else
      out = done(result_of(*taker));
    return true;
  };
  while (!stop && out.ok()) {
    const bool enough = yield();
    while (!enough && open.size() < static_cast<size_t>(most_in_flight_) && !service_.busy()) {
      if (!again.empty() && again.front().when <= Clock::now()) {
        start(std::move(again.front().line));
        again.pop_front();
        continue;
      }
      if (!more || open.size() + again.size() >= static_cast<size_t>(most_in_flight_))
        break;  // lines to be retried count as running
      if (auto line = next())
        start(std::move(*line));
      else
        more = false;
    }
    if (open.empty() && (enough || (!more && again.empty()))) break;
    for (auto& work : inbox->take()) work();
    std::erase_if(open, finish);
  }
  for (const auto& taker : open) taker->leave();
  for (auto& work : inbox->take()) work();  // lines that have just started must learn that they are abandoned
  inbox->close();
  return out;
}

}  // namespace millrace
