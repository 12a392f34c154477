#include "workload/remote/http_load.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>

#include "workload/remote/event_stream.h"

namespace millrace {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using Code = boost::system::error_code;
using SteadyTime = std::chrono::steady_clock;

constexpr uint64_t kMaxBody = uint64_t{256} << 20;
constexpr uint32_t kMaxHeader = 64 << 10;
constexpr size_t kMaxErrorBody = 4096;
constexpr auto kTick = std::chrono::milliseconds(100);

SteadyTime::duration seconds(double count) {
  return std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(count));
}

class HttpLoad;

// One request: connect, write, read the header, then the body in chunks.
class Flight : public std::enable_shared_from_this<Flight> {
 public:
  Flight(HttpLoad& load, asio::io_context& io, size_t index) : load_(load), stream_(io), index_(index) {}
  void start();

 private:
  void connected(Code code);
  void wrote(Code code);
  void read_header(Code code);
  void read_some();
  void got_some(Code code);
  bool take_bytes(std::string_view bytes);
  bool take_event(std::string_view data);
  void end(const std::string& error);
  void fail(const char* where, Code code);
  void expire();
  RequestRecord& record();

  HttpLoad& load_;
  beast::tcp_stream stream_;
  size_t index_;
  SteadyTime::time_point give_up_ = SteadyTime::time_point::max();
  http::request<http::string_body> request_;
  http::response_parser<http::buffer_body> parser_;
  beast::flat_buffer buffer_{size_t{1} << 20};
  std::array<char, 16384> piece_;
  EventStream events_;
  std::string error_body_;
  bool finished_ = false, ended_ = false;
};

class HttpLoad {
 public:
  HttpLoad(const Url& url, std::span<const WorkloadRequest> load, const HttpLoadOptions& options,
           const std::function<bool(int64_t, int64_t)>& progress)
      : url_(url),
        load_(load),
        options_(options),
        progress_(progress),
        records_(load.size()),
        arrival_(io_),
        tick_(io_) {}

  Result<std::vector<RequestRecord>> run() {
    Code code;
    addresses_ = tcp::resolver(io_).resolve(url_.host, url_.port, code);
    if (code) return Error::user(fmt::format("url: {} has no address: {}", url_.host, code.message()));
    start_ = SteadyTime::now();
    tick();
    send_due();
    io_.run();
    for (size_t i = 0; i < records_.size(); ++i) {  // after an interruption
      if (over_[i]) continue;
      records_[i].finished = now();
      if (i >= next_) records_[i].arrival = records_[i].sent = records_[i].finished;
      records_[i].error = i >= next_ ? "never sent: interrupted" : "interrupted";
    }
    return std::move(records_);
  }

  double now() const { return std::chrono::duration<double>(SteadyTime::now() - start_).count(); }

 private:
  friend class Flight;

  // Sends all requests that are due, and sets the timer for the next arrival.
  void send_due() {
    for (; next_ < load_.size(); ++next_) {
      const bool due =
          options_.closed_loop > 0 ? in_flight_ < options_.closed_loop : load_[next_].arrival_seconds <= now();
      if (!due) break;
      ++in_flight_;
      std::make_shared<Flight>(*this, io_, next_)->start();
    }
    if (next_ == load_.size() || options_.closed_loop > 0) return;
    arrival_.expires_at(start_ + seconds(load_[next_].arrival_seconds));
    arrival_.async_wait([this](Code code) {
      if (!code) send_due();
    });
  }

  void ended(size_t index) {
    over_[index] = true;
    --in_flight_;
    ++done_;
    if (options_.closed_loop > 0) asio::post(io_, [this] { send_due(); });
    if (done_ == static_cast<int64_t>(load_.size())) tick_.cancel();
  }

  void tick() {
    if (!progress_(done_, in_flight_)) return io_.stop();
    if (done_ == static_cast<int64_t>(load_.size())) return;
    tick_.expires_after(kTick);
    tick_.async_wait([this](Code code) {
      if (!code) tick();
    });
  }

  const Url& url_;
  std::span<const WorkloadRequest> load_;
  const HttpLoadOptions& options_;
  const std::function<bool(int64_t, int64_t)>& progress_;
  std::vector<RequestRecord> records_;
  std::vector<bool> over_ = std::vector<bool>(records_.size());
  asio::io_context io_;
  asio::steady_timer arrival_, tick_;
  tcp::resolver::results_type addresses_;
  SteadyTime::time_point start_;
  size_t next_ = 0;
  int64_t in_flight_ = 0, done_ = 0;
};

RequestRecord& Flight::record() { return load_.records_[index_]; }

void Flight::start() {
  const WorkloadRequest& asked = load_.load_[index_];
  const HttpLoadOptions& options = load_.options_;
  RequestRecord& r = record();
  r.prompt_tokens = asked.prompt_tokens;
  r.tenant = asked.tenant;
  r.sent = load_.now();
  r.arrival = options.closed_loop > 0 ? r.sent : asked.arrival_seconds;
  if (options.patience > 0) give_up_ = load_.start_ + seconds(r.arrival + options.patience);
  request_.method(http::verb::post);
  request_.version(11);
  request_.target(load_.url_.path + completion_path(options.style.api));
  request_.set(http::field::host, load_.url_.host_header());
  request_.set(http::field::content_type, "application/json");
  request_.set(http::field::accept, "text/event-stream");
  request_.set(http::field::connection, "close");
  if (!options.api_key.empty()) request_.set(http::field::authorization, "Bearer " + options.api_key);
  request_.body() = completion_body(options.style, asked);
  request_.prepare_payload();
  expire();
  stream_.async_connect(load_.addresses_,
                        [self = shared_from_this()](Code code, const tcp::endpoint&) { self->connected(code); });
}

void Flight::expire() { stream_.expires_at(std::min(give_up_, SteadyTime::now() + seconds(load_.options_.silence))); }

void Flight::connected(Code code) {
  if (code) return fail("connect", code);
  Code ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  expire();
  http::async_write(stream_, request_, [self = shared_from_this()](Code failed, size_t) { self->wrote(failed); });
}

void Flight::wrote(Code code) {
  if (code) return fail("send", code);
  parser_.header_limit(kMaxHeader);
  parser_.body_limit(kMaxBody);
  expire();
  http::async_read_header(stream_, buffer_, parser_,
                          [self = shared_from_this()](Code failed, size_t) { self->read_header(failed); });
}

void Flight::read_header(Code code) {
  if (code) return fail("answer", code);
  const auto type = parser_.get()[http::field::content_type];
  if (parser_.get().result() == http::status::ok && !beast::iequals(type.substr(0, 17), "text/event-stream"))
    return end("answer: is not an event stream");
  if (parser_.is_done()) return got_some({});
  read_some();
}

void Flight::read_some() {
  parser_.get().body().data = piece_.data();
  parser_.get().body().size = piece_.size();
  expire();
  http::async_read_some(stream_, buffer_, parser_, [self = shared_from_this()](Code code, size_t) {
    self->got_some(code == http::error::need_buffer ? Code() : code);
  });
}

void Flight::got_some(Code code) {
  if (code) return fail("answer", code);
  const auto& body = parser_.get().body();
  const size_t size = body.data ? static_cast<size_t>(static_cast<char*>(body.data) - piece_.data()) : 0;
  if (!take_bytes({piece_.data(), size})) return;
  if (!parser_.is_done()) return read_some();
  if (parser_.get().result() != http::status::ok) {
    const std::string message = completion_error(error_body_);
    return end(fmt::format("HTTP {}{}{}", parser_.get().result_int(), message.empty() ? "" : ": ", message));
  }
  end(finished_ ? "" : "the stream ended early");
}

// False: the request has ended.
bool Flight::take_bytes(std::string_view bytes) {
  if (parser_.get().result() != http::status::ok) {
    error_body_ += bytes.substr(0, kMaxErrorBody - std::min(kMaxErrorBody, error_body_.size()));
    return true;
  }
  if (auto pushed = events_.push(bytes, [this](std::string_view data) { return take_event(data); }); !pushed.ok())
    end(pushed.error().message);
  return !ended_;
}

bool Flight::take_event(std::string_view data) {
  const CompletionChunk chunk = read_completion_chunk(load_.options_.style.api, data);
  RequestRecord& r = record();
  if (!chunk.error.empty()) {
    end("answer: " + chunk.error);
    return false;
  }
  if (chunk.token) r.tokens.push_back(load_.now());
  if (chunk.prompt_tokens >= 0) r.prompt_tokens = chunk.prompt_tokens;
  if (chunk.cached_tokens >= 0) r.cached_tokens = chunk.cached_tokens;
  if (chunk.output_tokens >= 0) r.output_tokens = chunk.output_tokens;
  finished_ = finished_ || chunk.finished;
  if (!chunk.done) return true;
  end("");
  return false;
}

void Flight::end(const std::string& error) {
  if (ended_) return;
  ended_ = true;
  record().finished = load_.now();
  record().error = error;
  Code ignored;
  stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  stream_.close();
  load_.ended(index_);
}

void Flight::fail(const char* where, Code code) {
  if (code == beast::error::timeout) {
    const bool patience = SteadyTime::now() >= give_up_;
    return end(patience ? fmt::format("took longer than {} s", load_.options_.patience)
                        : fmt::format("silent for {} s", load_.options_.silence));
  }
  if (code == http::error::end_of_stream || code == http::error::partial_message) return end("the stream ended early");
  end(fmt::format("{}: {}", where, code.message()));
}

}  // namespace

Result<std::vector<RequestRecord>> run_http_load(const Url& url, std::span<const WorkloadRequest> load,
                                                 const HttpLoadOptions& options,
                                                 const std::function<bool(int64_t, int64_t)>& progress) {
  return HttpLoad(url, load, options, progress).run();
}

}  // namespace millrace
