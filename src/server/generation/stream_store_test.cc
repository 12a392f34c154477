// Every way out of every state of a resumable stream sends its reader one end.
#include "server/generation/stream_store.h"

#include <gtest/gtest.h>

#include "server/access/api_keys.h"
#include "server/access/key_account.h"
#include "server/http/answer_taker.h"

namespace millrace {
namespace {

// A connection: an answer ends by reply() before its stream has begun, by finish() afterwards, and by end() either way.
class FakeReader final : public AnswerTaker {
 public:
  void reply(HttpReply reply) override {
    if (begun) return;
    ++ends;
    status = reply.status;
  }
  void begin_stream(HttpReply head) override {
    begun = true;
    sent += head.body;
  }
  void write(std::string bytes) override { sent += bytes; }
  void finish(std::string bytes) override {
    if (!begun) return;
    ++ends;
    sent += bytes;
  }
  void end(HttpReply whole, std::string bytes) override { begun ? finish(std::move(bytes)) : reply(std::move(whole)); }
  void ping_with(HttpReply, std::string) override { begun = true; }
  void post(std::function<void()> work) override { work(); }
  void on_disconnect(std::function<void()> gone) override { gone_ = std::move(gone); }
  void leave() {
    if (auto gone = std::exchange(gone_, nullptr)) gone();
  }

  bool begun = false;
  int ends = 0, status = 0;
  std::string sent;

 private:
  std::function<void()> gone_;
};

enum class State { waiting, pinged, queued, queued_pinged, running, resumed };
enum class Event { replaced, removed, other_reader, finished, failed, refused };
constexpr State kStates[] = {State::waiting,       State::pinged,  State::queued,
                             State::queued_pinged, State::running, State::resumed};
constexpr Event kEvents[] = {Event::replaced, Event::removed, Event::other_reader,
                             Event::finished, Event::failed,  Event::refused};

FinalReply farewell(StreamEnd) { return {HttpReply{.status = 410}, "data: farewell\n\n"}; }

// A stream in one state.
struct Stream {
  StreamStore& store;
  std::shared_ptr<FakeReader> reader = std::make_shared<FakeReader>();
  Exchange kept;
  int cancelled = 0;

  explicit Stream(StreamStore& its, const std::string& id = "id")
      : store(its), kept(*its.keep("owner", id, Exchange(std::shared_ptr<AnswerTaker>(reader)), farewell)) {
    kept.on_disconnect([this] { ++cancelled; });
  }
  void reach(State state) {
    if (state == State::pinged || state == State::queued_pinged) kept.ping_with({}, ": ping\n\n");
    if (state == State::waiting || state == State::pinged) return;
    EXPECT_TRUE(store.admit("owner", "id", kept));
    if (state == State::running || state == State::resumed) kept.begin_stream({.body = "data: 1\n\n"});
    if (state == State::resumed) {
      reader = std::make_shared<FakeReader>();
      EXPECT_EQ(store.resume("owner", "id", 0, {}, Exchange(std::shared_ptr<AnswerTaker>(reader))),
                StreamStore::Found::yes);
    }
  }
};

TEST(StreamStore, EveryWayOutOfEveryStateSendsOneEnd) {
  for (const State state : kStates)
    for (const Event event : kEvents) {
      SCOPED_TRACE(testing::Message() << "state " << static_cast<int>(state) << ", event " << static_cast<int>(event));
      StreamStore store({});
      Stream stream(store);
      stream.reach(state);
      ASSERT_EQ(stream.reader->ends, 0);
      std::optional<Stream> next;
      const auto other = std::make_shared<FakeReader>();
      switch (event) {
        case Event::replaced:
          next.emplace(store);
          EXPECT_EQ(stream.reader->ends, 0) << "a request that may still be refused replaces nothing";
          next->reach(State::queued);
          break;
        case Event::removed: EXPECT_TRUE(store.remove("owner", "id")); break;
        case Event::other_reader:
          EXPECT_EQ(store.resume("owner", "id", 0, {}, Exchange(std::shared_ptr<AnswerTaker>(other))),
                    StreamStore::Found::yes);
          break;
        case Event::finished:
          if (state != State::running && state != State::resumed) stream.kept.begin_stream({});
          stream.kept.finish("data: [DONE]\n\n");
          break;
        case Event::failed: stream.kept.end({.status = 500}, "data: error\n\n"); break;
        case Event::refused: stream.kept.end({.status = 400}, "data: refused\n\n"); break;
      }
      EXPECT_EQ(stream.reader->ends, 1);
      const bool cancels = event == Event::replaced || event == Event::removed;
      EXPECT_EQ(stream.cancelled, cancels ? 1 : 0);
      // What the generation still says reaches nobody, or the other reader, which gets one end too.
      stream.kept.write("data: late\n\n");
      stream.kept.end({.status = 500}, "data: late end\n\n");
      EXPECT_EQ(stream.reader->ends, 1);
      EXPECT_EQ(other->ends, event == Event::other_reader ? 1 : 0);
      if (next) EXPECT_EQ(next->reader->ends, 0);
    }
}

TEST(StreamStore, WithoutAReaderTheWorkEnds) {
  for (const State state : kStates) {
    StreamStore store({});
    Stream stream(store);
    stream.reach(state);
    stream.reader->leave();
    const bool waiting = state == State::waiting || state == State::pinged;
    EXPECT_EQ(stream.cancelled, waiting ? 1 : 0) << static_cast<int>(state);
    store.drain();
    EXPECT_EQ(stream.cancelled, 1) << static_cast<int>(state);
  }
}

TEST(StreamStore, TheLaterRequestStaysWhicheverIsAdmittedFirst) {
  StreamStore store({});
  Stream first(store), second(store);
  second.reach(State::queued);
  EXPECT_EQ(first.reader->ends, 1);
  EXPECT_EQ(first.reader->status, 410);
  EXPECT_FALSE(store.admit("owner", "id", first.kept));
  EXPECT_EQ(second.reader->ends, 0);
  second.kept.end({}, "");
}

TEST(StreamStore, AnOwnersStreamsDoNotEvictAnothers) {
  StreamLimits limits;
  limits.stream_bytes = 1000;
  limits.total_bytes = 40000;
  StreamStore store(limits);
  const auto run = [&](const std::string& owner, const std::string& id) {
    const auto reader = std::make_shared<FakeReader>();
    const auto kept = store.keep(owner, id, Exchange(std::shared_ptr<AnswerTaker>(reader)), farewell);
    ASSERT_TRUE(kept);
    EXPECT_TRUE(store.admit(owner, id, *kept));
    kept->begin_stream({.body = "data: 1\n\n"});
    kept->finish("data: 2\n\n");
  };
  run("alice", "one");
  for (int i = 0; i < 50; ++i) run("bob", std::to_string(i));
  EXPECT_EQ(store.find("alice", {"one"}).size(), 1u);
  EXPECT_EQ(store.find("bob", {"0"}).size(), 0u);
  EXPECT_EQ(store.find("bob", {"49"}).size(), 1u);
}

TEST(StreamStore, AKeyIsOneOwnerUnderBothHeadersAndNeverItsText) {
  HttpRequest bearer{.headers = {{"authorization", "Bearer sk-secret"}}}, own{.headers = {{"x-api-key", "sk-secret"}}};
  EXPECT_EQ(stream_owner(bearer), stream_owner(own));
  EXPECT_EQ(stream_owner(bearer).find("secret"), std::string::npos);
  HttpRequest other{.headers = {{"x-api-key", "sk-other"}}}, basic{.headers = {{"authorization", "Basic c2VjcmV0"}}};
  EXPECT_NE(stream_owner(own), stream_owner(other));
  EXPECT_NE(stream_owner(basic), "");
  EXPECT_EQ(stream_owner(basic).find("c2VjcmV0"), std::string::npos);
  EXPECT_EQ(stream_owner(HttpRequest{}), "");
  own.account = bearer.account = std::make_shared<KeyAccount>(plain_api_key("sk-secret", 1));
  EXPECT_EQ(stream_owner(bearer), stream_owner(own));
}

}  // namespace
}  // namespace millrace
