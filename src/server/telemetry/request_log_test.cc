#include "server/telemetry/request_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

namespace millrace {
namespace {

// Returns everything that was logged, read from a pipe.
std::string logged(LogOptions options, const std::function<void(RequestLog&)>& use) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  options.descriptor = ends[1];
  {
    RequestLog log(options);
    use(log);
  }
  ::close(ends[1]);
  std::string out;
  char bytes[4096];
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof(bytes))) > 0;)
    out.append(bytes, static_cast<size_t>(count));
  ::close(ends[0]);
  return out;
}

std::unique_ptr<RequestFacts> nasty_facts() {
  auto facts = std::make_unique<RequestFacts>();
  facts->method = "POST";
  facts->path = "/v1/x\n2026-01-01T00:00:00Z level=error \"forged\"\x1b[2J\xff";
  facts->id = "id\r\nforged";
  facts->status = 404;
  facts->error = "not_found";
  facts->error_message = "a \"b\"\n";
  return facts;
}

TEST(RequestLog, ClientTextCannotForgeLines) {
  const auto facts = nasty_facts();
  const std::string json = logged({.format = "json"}, [&](RequestLog& log) { log.request(*facts); });
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 1);
  const Json line = Json::parse(json, nullptr, false);
  ASSERT_TRUE(line.is_object()) << json;
  EXPECT_EQ(line["request_id"], "id\r\nforged");
  EXPECT_EQ(line["level"], "warn");
  EXPECT_EQ(line["status"], 404);
  const std::string text = logged({.format = "text"}, [&](RequestLog& log) { log.request(*facts); });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c < 0x7F)) << static_cast<int>(c);
  EXPECT_NE(text.find("request_id=\"id\\r\\nforged\""), std::string::npos) << text;
}

TEST(RequestLog, OmitsPromptsUnlessEnabled) {
  RequestFacts facts;
  facts.method = "POST";
  facts.path = facts.handler = "/v1/completions";
  facts.status = 200;
  facts.generates = true;
  facts.model = "stories";
  facts.tenant = "team a";
  facts.prompt_tokens = 7;
  facts.generated_tokens = 3;
  facts.prompt = "a secret";
  facts.finish_reasons = {"stop", "length"};
  const std::string plain = logged({.format = "json"}, [&](RequestLog& log) { log.request(facts); });
  const Json line = Json::parse(plain);
  EXPECT_EQ(line["prompt_tokens"], 7);
  EXPECT_EQ(line["generated_tokens"], 3);
  EXPECT_EQ(line["tenant"], "team a");
  EXPECT_EQ(line["finish_reason"], "stop,length");
  EXPECT_EQ(plain.find("secret"), std::string::npos);
  const std::string with_prompts =
      logged({.format = "json", .prompts = true}, [&](RequestLog& log) { log.request(facts); });
  EXPECT_EQ(Json::parse(with_prompts)["prompt"], "a secret");
}

TEST(RequestLog, LevelsFilterLines) {
  RequestFacts good, probe;
  const auto refused = nasty_facts();
  good.status = probe.status = 200;
  probe.handler = "/health/live";
  const auto lines = [&](const char* level) {
    const std::string text = logged({.level = level}, [&](RequestLog& log) {
      log.request(good);
      log.request(*refused);
      log.request(probe);
      log.event(LogLevel::error, "broken", {{"why", "x"}});
    });
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines("debug"), 4);
  EXPECT_EQ(lines("info"), 3);
  EXPECT_EQ(lines("warn"), 2);
  EXPECT_EQ(lines("error"), 1);
  EXPECT_EQ(lines("off"), 0);
  EXPECT_FALSE(find_log_level("loud").ok());
}

TEST(Outbox, KeepsOrderDropsAndCounts) {
  std::mutex mutex;
  std::condition_variable wake;
  bool open = false, entered = false;
  std::vector<std::string> sent;
  {
    Outbox outbox(3, 2, std::chrono::milliseconds(0), [&](const std::vector<std::string>& batch) {
      std::unique_lock lock(mutex);
      EXPECT_LE(batch.size(), 2u);
      sent.insert(sent.end(), batch.begin(), batch.end());
      entered = true;
      wake.notify_all();
      wake.wait(lock, [&] { return open; });
    });
    outbox.put("a");
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return entered; });  // the thread is blocked sending "a"
    }
    for (const char* text : {"b", "c", "d", "e", "f"}) outbox.put(text);
    EXPECT_EQ(outbox.dropped(), 2);  // three are queued
    std::lock_guard lock(mutex);
    open = true;
    wake.notify_all();
  }
  EXPECT_EQ(sent, (std::vector<std::string>{"a", "b", "c", "d"}));
}

}  // namespace
}  // namespace millrace
