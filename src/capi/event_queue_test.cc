#include "capi/event_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

using Outcome = EventQueue::Outcome;

TokenEvent token(TokenId id, FinishReason finish = FinishReason::none) {
  TokenEvent event;
  event.token = id;
  event.text = "t";
  event.finish = finish;
  event.last = finish != FinishReason::none;
  return event;
}

std::shared_ptr<StreamQueue> added(EventQueue& queue) {
  auto stream = std::make_shared<StreamQueue>();
  queue.add(stream);
  return stream;
}

EventQueue::Deadline now() { return std::chrono::steady_clock::now(); }

TEST(EventQueue, ReturnsTheEventsOfAStreamInOrderAndThenTheEnd) {
  EventQueue queue(8);
  auto stream = added(queue);
  EXPECT_EQ(queue.next(*stream, now()), Outcome::timeout);
  EXPECT_TRUE(queue.arrived(stream, token(1)));
  EXPECT_TRUE(queue.arrived(stream, token(2, FinishReason::stop)));
  ASSERT_EQ(queue.next(*stream, now()), Outcome::event);
  EXPECT_EQ(stream->current.token, 1);
  ASSERT_EQ(queue.next(*stream, now()), Outcome::event);
  EXPECT_EQ(stream->current.token, 2);
  EXPECT_TRUE(stream->current.last);
  EXPECT_EQ(queue.next(*stream, {}), Outcome::end);
}

TEST(EventQueue, TakesStreamsInTurn) {
  EventQueue queue(8);
  auto a = added(queue), b = added(queue);
  for (TokenId id : {1, 2}) queue.arrived(a, token(id));
  for (TokenId id : {11, 12}) queue.arrived(b, token(id));
  std::vector<TokenId> read;
  for (int i = 0; i < 4; ++i) {
    std::shared_ptr<StreamQueue> from;
    ASSERT_EQ(queue.next_of_any(now(), &from), Outcome::event);
    read.push_back(from->current.token);
  }
  EXPECT_EQ(read, (std::vector<TokenId>{1, 11, 2, 12}));
  std::shared_ptr<StreamQueue> from;
  EXPECT_EQ(queue.next_of_any(now(), &from), Outcome::timeout);
  queue.arrived(a, token(3, FinishReason::length));
  ASSERT_EQ(queue.next(*a, now()), Outcome::event);  // read directly, so no stream is ready
  EXPECT_EQ(queue.next_of_any(now(), &from), Outcome::timeout);
  queue.remove(b);
  EXPECT_EQ(queue.next_of_any({}, &from), Outcome::end);
}

TEST(EventQueue, HoldsAtMostItsLimitAndTheLastEvent) {
  EventQueue queue(3);
  auto stream = added(queue);
  for (TokenId id = 0; id < 3; ++id) EXPECT_TRUE(queue.arrived(stream, token(id)));
  EXPECT_FALSE(queue.arrived(stream, token(3)));  // asks for one cancellation
  for (TokenId id = 4; id < 100; ++id) EXPECT_TRUE(queue.arrived(stream, token(id)));
  EXPECT_EQ(stream->events.size(), 3u);
  EXPECT_TRUE(queue.arrived(stream, token(-1, FinishReason::cancelled)));
  for (TokenId id = 0; id < 3; ++id) {
    ASSERT_EQ(queue.next(*stream, now()), Outcome::event);
    EXPECT_EQ(stream->current.token, id);
  }
  ASSERT_EQ(queue.next(*stream, now()), Outcome::event);
  EXPECT_EQ(stream->current.finish, FinishReason::error);
  EXPECT_EQ(stream->current.end->error.kind, ErrorKind::resource);
  EXPECT_EQ(queue.next(*stream, now()), Outcome::end);
}

TEST(EventQueue, AStreamThatIsReadInTimeHasNoLimit) {
  EventQueue queue(3);
  auto stream = added(queue);
  for (TokenId id = 0; id < 100; ++id) {
    EXPECT_TRUE(queue.arrived(stream, token(id)));
    ASSERT_EQ(queue.next(*stream, now()), Outcome::event);
    EXPECT_EQ(stream->current.token, id);
  }
}

TEST(EventQueue, DropsTheEventsOfAFreedStream) {
  EventQueue queue(3);
  auto stream = added(queue);
  queue.arrived(stream, token(1));
  queue.remove(stream);
  EXPECT_TRUE(queue.arrived(stream, token(2)));
  EXPECT_TRUE(stream->events.empty());
  EXPECT_EQ(stream.use_count(), 1);  // the queue holds no freed stream
  std::shared_ptr<StreamQueue> from;
  EXPECT_EQ(queue.next_of_any({}, &from), Outcome::end);
}

TEST(EventQueue, WakesThreadsThatWait) {
  EventQueue queue(3);
  auto stream = added(queue), other = added(queue);
  std::thread waits([&] { EXPECT_EQ(queue.next(*stream, {}), Outcome::event); });
  queue.arrived(stream, token(1));
  waits.join();
  std::shared_ptr<StreamQueue> from;
  std::thread waits_for_any([&] { EXPECT_EQ(queue.next_of_any({}, &from), Outcome::event); });
  queue.arrived(other, token(5));
  waits_for_any.join();
  EXPECT_EQ(from, other);
}

}  // namespace
}  // namespace millrace
