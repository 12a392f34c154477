#include "server/generation/fair_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>

namespace millrace {
namespace {

// Blocks the thread with a first job while requests are added, then runs them and records the order of pieces.
struct BlockedWorker {
  std::promise<void> go;
  std::mutex mutex;
  std::string order;
  std::vector<std::shared_ptr<std::atomic<bool>>> unwanted;
  std::promise<void> began;
  FairWorker worker;  // last: its thread uses the others

  explicit BlockedWorker(FairLimits limits = {}) : worker("requests are waiting", limits) {
    auto release = go.get_future().share();
    EXPECT_TRUE(worker
                    .add({{"holder", 1},
                          {1},
                          nullptr,
                          [this, release](size_t) {
                            began.set_value();
                            release.wait();
                            return true;
                          }})
                    .ok());
    began.get_future().wait();
  }
  Result<void> add(char name, const std::string& tenant, std::vector<int64_t> pieces, double weight = 1) {
    unwanted.push_back(std::make_shared<std::atomic<bool>>(false));
    return worker.add({{tenant, weight}, std::move(pieces), unwanted.back(), [this, name](size_t) {
                         std::lock_guard lock(mutex);
                         order += name;
                         return true;
                       }});
  }
  // Waits for `pieces` pieces in total.
  std::string run(size_t pieces) {
    go.set_value();
    for (int i = 0; i < 10000; ++i) {
      {
        std::lock_guard lock(mutex);
        if (order.size() >= pieces) return order;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return order;
  }
};

TEST(FairWorker, SmallRequestOvertakesLargeOneOfSameTenant) {
  BlockedWorker blocked;
  ASSERT_TRUE(blocked.add('L', "a", {100, 100, 100}).ok());
  ASSERT_TRUE(blocked.add('s', "a", {10}).ok());
  EXPECT_EQ(blocked.run(4), "sLLL");
}

TEST(FairWorker, LargeRequestDoesNotStarve) {
  BlockedWorker blocked;
  ASSERT_TRUE(blocked.add('L', "a", {50, 50}).ok());
  // Each is smaller than the rest of the large one, but together they are larger.
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(blocked.add('s', "a", {20}).ok());
  const std::string order = blocked.run(22);
  EXPECT_EQ(order.size(), 22u);
  FairWorker worker("requests are waiting");  // requests arriving while it runs: each adds the next
  std::promise<size_t> passed;
  std::atomic<size_t> count{0};
  std::function<void()> add_small = [&] {
    (void)worker.add({{"a", 1}, {20}, nullptr, [&](size_t) {
                        if (++count < 1000) add_small();
                        return true;
                      }});
  };
  ASSERT_TRUE(worker
                  .add({{"a", 1},
                        {50, 50},
                        nullptr,
                        [&](size_t piece) {
                          if (piece == 0)
                            add_small();
                          else
                            passed.set_value(count);
                          return true;
                        }})
                  .ok());
  EXPECT_LE(passed.get_future().get(), 5u);
  worker.stop();
}

TEST(FairWorker, KnowsTheMostUrgentOfItsWork) {
  BlockedWorker blocked;
  EXPECT_EQ(blocked.worker.most_urgent(), 0);
  const auto urgent = std::make_shared<std::atomic<bool>>(false);
  const auto add = [&](int64_t priority, std::shared_ptr<std::atomic<bool>> unwanted) {
    WorkShare share{"a", 1};
    share.priority = priority;
    return blocked.worker.add({share, {1}, std::move(unwanted), [](size_t) { return true; }});
  };
  ASSERT_TRUE(add(-3, nullptr).ok());
  EXPECT_EQ(blocked.worker.most_urgent(), 0);  // of the one that runs
  ASSERT_TRUE(add(4, urgent).ok());
  EXPECT_EQ(blocked.worker.most_urgent(), 4);
  *urgent = true;
  EXPECT_EQ(blocked.worker.most_urgent(), 0);
  blocked.run(0);
}

TEST(FairWorker, TenantsShareByServiceReceived) {
  BlockedWorker blocked;
  ASSERT_TRUE(blocked.add('A', "a", {10, 10, 10, 10}).ok());
  ASSERT_TRUE(blocked.add('A', "a", {10, 10, 10, 10}).ok());
  ASSERT_TRUE(blocked.add('b', "b", {10, 10, 10, 10}).ok());
  EXPECT_EQ(blocked.run(12), "AbAbAbAbAAAA");
}

TEST(FairWorker, WeightsCount) {
  BlockedWorker blocked;
  ASSERT_TRUE(blocked.add('A', "a", std::vector<int64_t>(9, 10), 2).ok());
  ASSERT_TRUE(blocked.add('b', "b", std::vector<int64_t>(9, 10), 1).ok());
  const std::string order = blocked.run(18).substr(0, 9);
  EXPECT_EQ(std::ranges::count(order, 'A'), 6);
}

TEST(FairWorker, NewTenantsDoNotStarveAnother) {
  FairWorker worker("requests are waiting");
  std::promise<size_t> passed;
  std::atomic<size_t> count{0};
  std::function<void()> add_one = [&] {
    (void)worker.add({{"new " + std::to_string(count), 1}, {5}, nullptr, [&](size_t) {
                        if (++count < 1000) add_one();
                        return true;
                      }});
  };
  ASSERT_TRUE(worker
                  .add({{"large", 1},
                        {50, 50},
                        nullptr,
                        [&](size_t piece) {
                          if (piece == 0)
                            add_one();
                          else
                            passed.set_value(count);
                          return true;
                        }})
                  .ok());
  EXPECT_LE(passed.get_future().get(), 20u);
  worker.stop();
}

TEST(FairWorker, QueueIsBoundedAndDropsUnwantedRequests) {
  BlockedWorker blocked({.requests = 4, .requests_of_one = 2, .tokens = 100});
  ASSERT_TRUE(blocked.add('a', "a", {10}).ok());
  ASSERT_TRUE(blocked.add('a', "a", {10}).ok());
  EXPECT_EQ(blocked.add('a', "a", {10}).error().kind, ErrorKind::resource);    // per tenant
  EXPECT_EQ(blocked.add('b', "b", {1000}).error().kind, ErrorKind::resource);  // tokens
  ASSERT_TRUE(blocked.add('b', "b", {10}).ok());
  EXPECT_EQ(blocked.add('c', "c", {10}).error().kind, ErrorKind::resource);  // total
  *blocked.unwanted[0] = true;
  ASSERT_TRUE(blocked.add('c', "c", {10}).ok());
  EXPECT_EQ(blocked.run(3).size(), 3u);
}

}  // namespace
}  // namespace millrace
