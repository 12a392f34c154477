#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(ThreadPool, EveryIndexRunsExactlyOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      const int n = round % 37;
      std::vector<std::atomic<int>> hits(n);
      std::atomic<bool> worker_in_range{true};
      pool.parallel_for(n, [&](int64_t i, int worker) {
        hits[i].fetch_add(1);
        if (worker < 0 || worker >= threads) worker_in_range = false;
      });
      for (auto& hit : hits) ASSERT_EQ(hit.load(), 1);
      ASSERT_TRUE(worker_in_range);
    }
  }
}

// Ranges of any size cover every index once, and none is longer than requested.
TEST(ThreadPool, RangesCoverEveryIndexOnce) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 2, 7, 64, 1000, 400'000}) {
      for (const ThreadPool::Claims& claims : {ThreadPool::Claims{1, 1}, {1, 5}, {3, 3}, {4, 37}, {1, 1'000'000}}) {
        std::vector<std::atomic<uint8_t>> hits(static_cast<size_t>(n));
        std::atomic<bool> good{true};
        pool.parallel_ranges(n, claims, [&](int64_t begin, int64_t end, int worker) {
          // With very many indices, a ticket covers several.
          const int64_t most = std::max<int64_t>(claims.most, (n - 1) / (0xffff * int64_t{threads}) + 1);
          if (begin >= end || begin < 0 || end > n || end - begin > most || worker < 0 || worker >= threads)
            good = false;
          for (int64_t i = begin; i < end && i < n; ++i)
            hits[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
        });
        ASSERT_TRUE(good) << threads << " threads, " << n << " indices, claims of " << claims.least << " to "
                          << claims.most;
        for (const auto& hit : hits) ASSERT_EQ(hit.load(std::memory_order_relaxed), 1);
      }
    }
  }
}

TEST(ThreadPool, WritesOfWorkersAreVisibleAfterTheLoop) {
  ThreadPool pool(3);
  std::vector<int64_t> squares(1000);
  pool.parallel_for(1000, [&](int64_t i, int) { squares[i] = i * i; });
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(squares[i], i * i);
}

// Back-to-back jobs of varying size, so that late workers encounter the next job.
TEST(ThreadPool, LateWorkersNeverTouchAnotherJob) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> hits(64);
  for (int round = 0; round < 5000; ++round) {
    const int n = 2 + (round * 7919) % 63;
    for (auto& hit : hits) hit.store(0, std::memory_order_relaxed);
    pool.parallel_for(n, [&](int64_t i, int) { hits[static_cast<size_t>(i)].fetch_add(1); });
    for (int i = 0; i < 64; ++i) ASSERT_EQ(hits[static_cast<size_t>(i)].load(), i < n ? 1 : 0) << "round " << round;
  }
}

// Several threads share a pool: their loops do not mix, and each one's results are visible to the next.
TEST(ThreadPool, TurnsKeepSharersApart) {
  ThreadPool pool(3);
  int64_t inside = 0;  // not atomic: turns order it
  std::vector<int64_t> sums(64);
  const auto user = [&] {
    for (int round = 0; round < 300; ++round) {
      const ThreadPool::Turn turn(pool);
      ASSERT_EQ(inside++, 0);
      pool.parallel_for(64, [&](int64_t i, int) { ++sums[static_cast<size_t>(i)]; });
      --inside;
    }
  };
  {
    std::vector<std::jthread> users;
    for (int i = 0; i < 4; ++i) users.emplace_back(user);
  }
  for (int64_t sum : sums) EXPECT_EQ(sum, 4 * 300);
}

#ifndef NDEBUG
TEST(ThreadPoolDeathTest, ASecondTurnWithinTheFirstIsRefused) {
  ThreadPool pool(1), other(1);
  const ThreadPool::Turn turn(pool);
  { const ThreadPool::Turn of_other(other); }
  EXPECT_DEATH({ const ThreadPool::Turn again(pool); }, "held_");
}
#endif

// One that comes again at once waits behind one that came before.
TEST(ThreadPool, TurnsAreInOrderOfArrival) {
  ThreadPool pool(1);
  std::vector<int> order;
  std::optional<ThreadPool::Turn> held(std::in_place, pool);
  const auto user = [&](int id) {
    const ThreadPool::Turn turn(pool);
    order.push_back(id);
  };
  std::vector<std::jthread> users;
  for (int id = 0; id < 4; ++id) {
    users.emplace_back([&, id] { user(id); });
    while (pool.turns() != static_cast<uint32_t>(id) + 2) std::this_thread::yield();
  }
  held.reset();
  user(9);
  users.clear();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 9}));
}

// A limit on the address space prevents so many stacks. It cannot be lifted again, so it is set in a child process.
TEST(ThreadPool, RunsWithFewerThreadsIfTheSystemRefusesMore) {
#ifdef MILLRACE_SANITIZED
  GTEST_SKIP() << "sanitizers need more address space than the limit";
#endif
  auto limited = [] {
    const rlimit limit{rlim_t{1} << 30, rlim_t{1} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(2);
    int64_t sum = 0;
    {
      ThreadPool pool(4096);
      if (pool.threads() >= 4096) std::_Exit(3);
      std::vector<int64_t> ones(100);
      pool.parallel_for(100, [&](int64_t i, int) { ones[static_cast<size_t>(i)] = 1; });
      for (int64_t one : ones) sum += one;
    }
    std::_Exit(sum == 100 ? 0 : 4);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(limited(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace millrace
