// The load generator against a minimal server in this process that sends exactly the bytes of each case.
#include "workload/remote/http_load.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <mutex>
#include <thread>

#include "base/ordered_json.h"

namespace millrace {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

std::string chunk_of(const char* text, const char* reason = "null") {
  return std::string("data: {\"choices\":[{\"text\":\"") + text + "\",\"finish_reason\":" + reason + "}]}\n\n";
}

// Answers every connection with the result of `answer`, one thread each, and closes it; "" leaves the connection open
// until the client closes it.
class FakeServer {
 public:
  explicit FakeServer(std::function<std::string(const std::string& body)> answer)
      : answer_(std::move(answer)), acceptor_(io_, {asio::ip::address_v4::loopback(), 0}) {
    accepting_ = std::thread([this] {
      for (;;) {
        tcp::socket socket(io_);
        boost::system::error_code code;
        acceptor_.accept(socket, code);
        if (code || stopping_) return;
        std::lock_guard lock(mutex_);
        serving_.emplace_back([this, s = std::make_shared<tcp::socket>(std::move(socket))] { serve(*s); });
      }
    });
  }
  ~FakeServer() {
    stopping_ = true;
    boost::system::error_code code;
    tcp::socket wake(io_);
    wake.connect(acceptor_.local_endpoint(), code);
    accepting_.join();
    for (std::thread& thread : serving_) thread.join();
  }
  Url url() const { return *Url::parse("http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port())); }
  std::vector<std::string> heads() const {
    std::lock_guard lock(mutex_);
    return heads_;
  }
  int most_open() const { return most_open_; }

 private:
  void serve(tcp::socket& socket) {
    boost::system::error_code code;
    std::string head, body;
    const size_t end = asio::read_until(socket, asio::dynamic_buffer(head), "\r\n\r\n", code);
    if (code) return;
    body = head.substr(end);
    head.resize(end);
    const size_t length = std::stoul(head.substr(head.find("Content-Length: ") + 16));
    std::string rest(length - body.size(), '\0');
    asio::read(socket, asio::buffer(rest), code);
    body += rest;
    {
      std::lock_guard lock(mutex_);
      heads_.push_back(head);
    }
    const int open = ++open_;
    for (int most = most_open_; open > most && !most_open_.compare_exchange_weak(most, open);) {
    }
    const std::string out = answer_(body);
    --open_;
    if (out.empty()) {
      char byte;
      socket.read_some(asio::buffer(&byte, 1), code);  // until the client gives up
    } else {
      asio::write(socket, asio::buffer(out), code);
    }
  }

  std::function<std::string(const std::string&)> answer_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::thread accepting_;
  std::vector<std::thread> serving_;
  mutable std::mutex mutex_;
  std::vector<std::string> heads_;
  std::atomic<int> open_ = 0, most_open_ = 0;
  std::atomic<bool> stopping_ = false;
};

std::vector<WorkloadRequest> make_load(size_t count) {
  std::vector<WorkloadRequest> load(count);
  for (size_t i = 0; i < count; ++i) load[i].id = i, load[i].prompt_tokens = 5, load[i].output_tokens = 3;
  return load;
}

std::vector<RequestRecord> run(const Url& url, size_t count, HttpLoadOptions options = {}) {
  const auto load = make_load(count);
  auto records = run_http_load(url, load, options, [](int64_t, int64_t) { return true; });
  EXPECT_TRUE(records.ok()) << (records.ok() ? "" : records.error().message);
  return records.ok() ? std::move(*records) : std::vector<RequestRecord>(count);
}

TEST(HttpLoad, CompletionsAreTimedTokenByToken) {
  std::string request_body;
  FakeServer server([&](const std::string& body) {
    request_body = body;
    return kOk + ": hello\n\n" + chunk_of("a") + chunk_of("") + chunk_of("c", "\"length\"") +
           "data: "
           "{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_"
           "tokens\":2}}}\n\ndata: [DONE]\n\n";
  });
  HttpLoadOptions options;
  options.style.model = "m";
  options.style.vocab = 100;
  options.api_key = "secret";
  const auto records = run(server.url(), 1, options);
  EXPECT_EQ(records[0].error, "");
  EXPECT_EQ(records[0].tokens.size(), 3u);
  EXPECT_EQ(records[0].count(), 4);
  EXPECT_EQ(records[0].prompt_tokens, 7);
  EXPECT_EQ(records[0].cached_tokens, 2);
  EXPECT_TRUE(std::ranges::is_sorted(records[0].tokens));
  const auto json = nlohmann::json::parse(request_body);
  EXPECT_EQ(json["model"], "m");
  EXPECT_EQ(json["max_tokens"], 3);
  EXPECT_EQ(json["ignore_eos"], true);
  EXPECT_EQ(json["prompt"].size(), 5u);
  ASSERT_EQ(server.heads().size(), 1u);
  EXPECT_TRUE(server.heads()[0].starts_with("POST /v1/completions HTTP/1.1\r\n"));
  EXPECT_NE(server.heads()[0].find("Authorization: Bearer secret\r\n"), std::string::npos);
}

TEST(HttpLoad, ChatAnswersComeInDeltas) {
  std::string request_body;
  FakeServer server([&](const std::string& body) {
    request_body = body;
    return kOk + R"(data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})" + "\n\n" +
           R"(data: {"choices":[{"delta":{"content":"hi"},"finish_reason":null}]})" + "\n\n" +
           R"(data: {"choices":[{"delta":{},"finish_reason":"length"}]})" + "\n\ndata: [DONE]\n\n";
  });
  const auto records = run(server.url(), 1, {.style = {.api = CompletionApi::chat}});
  EXPECT_EQ(records[0].error, "");
  EXPECT_EQ(records[0].tokens.size(), 1u);
  const auto json = nlohmann::json::parse(request_body);
  EXPECT_EQ(json["messages"][0]["role"], "user");
  EXPECT_TRUE(server.heads()[0].starts_with("POST /v1/chat/completions "));
}

TEST(HttpLoad, StopFieldOfLlamaServerEndsTheAnswer) {
  FakeServer server([](const std::string&) {
    return kOk + R"(data: {"content":"a","stop":false})" + "\r\n\r\n" + R"(data: {"content":"b","stop":false})" +
           "\r\n\r\n" +
           R"(data: {"content":"","stop":true,"tokens_predicted":2,"tokens_evaluated":5,"timings":{"cache_n":3}})" +
           "\r\n\r\n";
  });
  const auto records = run(server.url(), 1, {.style = {.api = CompletionApi::llama}});
  EXPECT_EQ(records[0].error, "");
  EXPECT_EQ(records[0].count(), 2);
  EXPECT_EQ(records[0].cached_tokens, 3);
}

TEST(HttpLoad, ErrorsAreCountedByKind) {
  std::atomic<int> nth = 0;
  FakeServer server([&](const std::string&) -> std::string {
    switch (nth++ % 6) {
      case 0: return "HTTP/1.1 503 Busy\r\nContent-Length: 40\r\n\r\n{\"error\":{\"message\":\"queue is full\"}}    ";
      case 1: return kOk + chunk_of("a");  // closed mid-stream
      case 2: return kOk + "data: nonsense\n\n";
      case 3: return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
      case 4: return kOk + "data: {\"error\":\"out of memory\"}\n\n";
      default: return "no HTTP at all\r\n\r\n";
    }
  });
  const LoadMetrics metrics = measure_load(run(server.url(), 12, {.closed_loop = 1}));
  EXPECT_EQ(metrics.failed, 12);
  EXPECT_EQ(metrics.errors.size(), 6u);
  for (const auto& [error, count] : metrics.errors) EXPECT_EQ(count, 2) << error;
  for (const char* error :
       {"HTTP 503: queue is full", "the stream ended early", "answer: an event is not a JSON object",
        "answer: is not an event stream", "answer: out of memory"})
    EXPECT_TRUE(metrics.errors.contains(error)) << error;
}

TEST(HttpLoad, SilentServersAndEndlessLinesFail) {
  FakeServer silent([](const std::string&) { return ""; });
  EXPECT_EQ(run(silent.url(), 1, {.patience = 0.05})[0].error, "took longer than 0.05 s");
  EXPECT_EQ(run(silent.url(), 1, {.silence = 0.05})[0].error, "silent for 0.05 s");
  FakeServer endless([](const std::string&) { return kOk + "data: " + std::string(3 << 20, 'x'); });
  EXPECT_NE(run(endless.url(), 1)[0].error.find("longer than"), std::string::npos);
}

TEST(HttpLoad, ConnectionRefused) {
  Url url;
  {
    FakeServer gone([](const std::string&) { return ""; });
    url = gone.url();
  }
  const auto records = run(url, 2);
  EXPECT_TRUE(records[0].error.starts_with("connect: ")) << records[0].error;
  EXPECT_EQ(records[0].error, records[1].error);
}

TEST(HttpLoad, ClosedLoopKeepsItsNumberInFlight) {
  FakeServer server([](const std::string&) { return kOk + chunk_of("a", "\"length\"") + "data: [DONE]\n\n"; });
  const auto records = run(server.url(), 24, {.closed_loop = 3});
  for (const auto& record : records) EXPECT_EQ(record.error, "");
  EXPECT_LE(server.most_open(), 3);
  EXPECT_EQ(server.heads().size(), 24u);
}

TEST(HttpLoad, StopsOnRequest) {
  FakeServer server([](const std::string&) { return ""; });
  const auto load = make_load(3);
  HttpLoadOptions options;
  options.closed_loop = 2;
  auto records = run_http_load(server.url(), load, options, [](int64_t, int64_t in_flight) { return in_flight < 2; });
  ASSERT_TRUE(records.ok());
  EXPECT_EQ((*records)[0].error, "interrupted");
  EXPECT_EQ((*records)[2].error, "never sent: interrupted");
}

}  // namespace
}  // namespace millrace
