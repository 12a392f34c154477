#include "engine/stream_lists.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

StreamPtr stream(RequestId request, int64_t answer = 0) {
  auto made = std::make_unique<LiveStream>();
  made->sequence.id = answer_stream(request, answer);
  made->sequence.parent = answer > 0 ? request : 0;
  return made;
}

template <typename List>
std::vector<RequestId> ids(const List& list) {
  std::vector<RequestId> out;
  for (const StreamPtr& one : list) out.push_back(one->sequence.id);
  return out;
}

using Ids = std::vector<RequestId>;

TEST(StreamLists, MovesAStreamFromListToList) {
  StreamLists lists;
  for (RequestId id : {1, 2, 3}) lists.add(stream(id));
  EXPECT_EQ(ids(lists.waiting()), (Ids{1, 2, 3}));
  EXPECT_EQ(lists.find(2)->sequence.arrival, 2);
  EXPECT_EQ(lists.find(4), nullptr);
  for (RequestId id : {3, 1, 2}) lists.start(*lists.find(id));
  EXPECT_EQ(ids(lists.running()), (Ids{3, 1, 2})) << "in order of admission";
  EXPECT_TRUE(lists.waiting().empty());
  lists.leave(*lists.find(1));
  EXPECT_EQ(ids(lists.leaving()), (Ids{1}));
  lists.add(stream(4));
  lists.requeue(*lists.find(3));
  lists.requeue(*lists.find(1));
  EXPECT_EQ(ids(lists.waiting()), (Ids{1, 3, 4})) << "in order of arrival";
  EXPECT_EQ(ids(lists.running()), (Ids{2}));
  EXPECT_TRUE(lists.leaving().empty());
}

TEST(StreamLists, EndedStreamLeavesTheTableAtOnceAndItsListLater) {
  StreamLists lists;
  for (RequestId id : {1, 2, 3}) lists.add(stream(id));
  lists.start(*lists.find(1));
  for (RequestId id : {1, 2}) {
    LiveStream& ended = *lists.find(id);
    lists.remove(ended.sequence);
    ended.ended = true;
    EXPECT_EQ(lists.find(id), nullptr);
  }
  EXPECT_EQ(lists.table().size(), 1u);
  EXPECT_EQ(lists.running().size(), 1u);
  lists.erase_ended_running();
  EXPECT_TRUE(lists.running().empty());
  EXPECT_EQ(lists.waiting().size(), 2u);
  lists.erase_ended();
  EXPECT_EQ(ids(lists.waiting()), (Ids{3}));
}

TEST(StreamLists, CancelMarksEveryAnswer) {
  StreamLists lists;
  for (int64_t answer : {0, 1}) lists.add(stream(1, answer));
  lists.add(stream(2));
  EXPECT_FALSE(lists.take_end_check());
  lists.cancel(7);
  EXPECT_FALSE(lists.take_end_check());
  lists.cancel(1);
  EXPECT_TRUE(lists.find(1)->cancelled);
  EXPECT_TRUE(lists.find(answer_stream(1, 1))->cancelled);
  EXPECT_FALSE(lists.find(2)->cancelled);
  EXPECT_TRUE(lists.take_end_check());
  EXPECT_FALSE(lists.take_end_check()) << "once for each cancellation";
}

TEST(StreamLists, TimeLimitRequiresAnEndCheckEveryStep) {
  StreamLists lists;
  auto limited = stream(1);
  limited->sequence.times.time_limit = 1;
  lists.add_running(std::move(limited));
  EXPECT_TRUE(lists.take_end_check());
  EXPECT_TRUE(lists.take_end_check());
  lists.remove(lists.find(1)->sequence);
  EXPECT_FALSE(lists.take_end_check());
}

TEST(StreamLists, CountsFurtherAnswersInTheQueue) {
  StreamLists lists;
  for (int64_t answer : {0, 1, 2}) lists.add(stream(1, answer));
  LiveStream &first = *lists.find(answer_stream(1, 1)), &second = *lists.find(answer_stream(1, 2));
  EXPECT_TRUE(lists.answers_wait());
  lists.start(first);
  first.sequence.phase = StreamPhase::running;
  EXPECT_TRUE(lists.answers_wait());
  lists.remove(second.sequence);  // cancelled in the queue
  EXPECT_FALSE(lists.answers_wait());
  lists.requeue(first);
  EXPECT_TRUE(lists.answers_wait());
  lists.start(first);
  lists.remove(first.sequence);
  EXPECT_FALSE(lists.answers_wait());
}

}  // namespace
}  // namespace millrace
