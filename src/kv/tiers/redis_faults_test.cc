// Whatever a Redis server does in the middle of a lookup, a load or a write, the store gives no wrong byte: what did
// not arrive intact is missing, and the next connection serves the next requests.
#include "kv/tiers/redis_store_test.h"

namespace millrace {
namespace {

using Answer = FakeRedis::Answer;

struct Fault {
  const char* name;
  std::function<Answer(const std::string& reply)> answer;
  bool closes = true;    // the store gives up the connection
  bool damaged = false;  // a block of other bytes
};

std::string flipped(std::string reply) {
  reply[reply.size() - 3] ^= 1;
  return reply;
}

// The proper reply is $480\r\n, 480 bytes, \r\n.
const Fault kFaults[] = {
    {"closed",
     [](const std::string&) {
       return Answer{"", true};
     }},
    {"truncated",
     [](const std::string& reply) {
       return Answer{reply.substr(0, 200), true};
     }},
    // What follows is then taken for the reply, and is another block's.
    {"silent", [](const std::string&) { return Answer{}; }, true, true},
    {"stalls in the middle", [](const std::string& reply) { return Answer{reply.substr(0, 200)}; }, true, true},
    {"garbage", [](const std::string&) { return Answer{"<html>not Redis</html>\r\n"}; }},
    {"a number", [](const std::string&) { return Answer{":7\r\n"}; }},
    {"a status", [](const std::string&) { return Answer{"+OK\r\n"}; }},
    {"an array", [](const std::string&) { return Answer{"*2000000000\r\n"}; }},
    {"an empty array", [](const std::string&) { return Answer{"*0\r\n"}; }},
    {"a length without bytes", [](const std::string&) { return Answer{"$9223372036854775807\r\n"}; }},
    {"a negative length", [](const std::string&) { return Answer{"$-7\r\n"}; }},
    {"no end of line", [](const std::string&) { return Answer{"$" + std::string(2 << 20, '1')}; }},
    {"more than it said", [](const std::string& reply) { return Answer{"$3\r\n" + reply}; }, true, true},
    {"an error", [](const std::string&) { return Answer{"-ERR out of order\r\n"}; }, false},
    {"nil", [](const std::string&) { return Answer{"$-1\r\n"}; }},
    {"nothing stored", [](const std::string&) { return Answer{"$0\r\n\r\n"}; }, false},
    {"a wrong byte", [](const std::string& reply) { return Answer{flipped(reply)}; }, false, true},
    {"another value", [](const std::string&) { return Answer{"$5\r\nhello\r\n"}; }, false, true},
    {"one byte more", [](const std::string& reply) { return Answer{"$481\r\n" + reply.substr(6, 480) + "x\r\n"}; },
     false, true},
    {"one byte less", [](const std::string& reply) { return Answer{"$479\r\n" + reply.substr(6, 479) + "\r\n"}; },
     false, true},
};

// The second of three blocks goes wrong.
TEST_F(RedisStoreTest, LoadsSurviveEveryFault) {
  store_chain();
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.name);
    auto store = open(options(fault.closes ? 0.05 : 20));
    int64_t loads = 0;
    server_->answer([&](const FakeRedis::Command& command, const std::string& reply) {
      return command[0] == "GETRANGE" && ++loads == 2 ? fault.answer(reply) : Answer{reply};
    });
    const LoadProgress progress = load(*store, chain_);
    EXPECT_EQ(progress.state, TierState::ready);
    EXPECT_LE(progress.blocks, 1);
    if (progress.blocks == 1) {
      EXPECT_TRUE(filled(into_[0], 10));
    }
    EXPECT_TRUE(filled(into_[1], 2)) << "untouched";
    EXPECT_EQ(store->stats().corrupt_blocks, fault.damaged ? 1 : 0);
    server_->answer({});
    EXPECT_TRUE(until(*store, [&] { return store->find(chain_) == 3 && load(*store, chain_).blocks == 3; }));
  }
}

TEST_F(RedisStoreTest, LookupsSurviveEveryFault) {
  store_chain();
  for (const Fault& fault : kFaults) {
    if (std::string(fault.name) == "a number") continue;  // is a proper reply here
    SCOPED_TRACE(fault.name);
    auto store = open(options(0.05));
    int64_t lookups = 0;
    server_->answer([&](const FakeRedis::Command& command, const std::string& reply) {
      return command[0] == "TOUCH" && ++lookups == 2 ? fault.answer("$480\r\n" + std::string(480, 'x') + "\r\n")
                                                     : Answer{reply};
    });
    EXPECT_LE(store->find(chain_), 1);
    server_->answer({});
    EXPECT_TRUE(until(*store, [&] { return store->find(chain_) == 3; }));
  }
}

TEST_F(RedisStoreTest, WritesSurviveEveryFault) {
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.name);
    auto store = open(options(0.05));
    int64_t writes = 0;
    server_->change([](auto& values) { values.clear(); });
    server_->answer([&](const FakeRedis::Command& command, const std::string& reply) {
      return command[0] == "SET" && ++writes == 2 ? fault.answer("$480\r\n" + std::string(480, 'x') + "\r\n")
                                                  : Answer{reply};
    });
    put(*store, chain_);
    ASSERT_TRUE(until(*store, [&] { return store->stats().written_blocks + store->stats().dropped_blocks == 3; }));
    server_->answer({});
    EXPECT_TRUE(until(*store, [&] {
      put(*store, chain_);  // what was dropped
      return store->find(chain_) == 3 && load(*store, chain_).blocks == 3;
    }));
    EXPECT_EQ(store->stats().corrupt_blocks, 0);
  }
}

// Blocks that came back damaged may be stored again, and then are whole.
TEST_F(RedisStoreTest, DamagedBlocksAreReplaced) {
  store_chain();
  server_->change([](auto& values) { values.begin()->second.back() ^= 1; });
  auto store = open(options());
  EXPECT_EQ(store->find(chain_), 3);
  EXPECT_LT(load(*store, chain_).blocks, 3);
  EXPECT_EQ(store->stats().corrupt_blocks, 1);
  put(*store, chain_);
  EXPECT_TRUE(until(*store, [&] { return store->stats().written_blocks == 1; }));
  EXPECT_EQ(store->find(chain_), 3);
  EXPECT_EQ(load(*store, chain_).blocks, 3);
}

// A load that was given up writes nothing, whenever its bytes arrive.
TEST_F(RedisStoreTest, NothingArrivesAfterALoadIsErased) {
  store_chain();
  auto store = open(options());
  std::atomic<bool> open_gate = false;
  server_->answer([&](const FakeRedis::Command& command, const std::string& reply) {
    for (int i = 0; command[0] == "GETRANGE" && !open_gate && i < 6000; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return Answer{reply};
  });
  for (const BlockId block : into_) fill(block, 2);
  const TierTicket ticket = store->load(chain_, into_);
  EXPECT_EQ(store->loading_blocks(), 3);
  EXPECT_FALSE(store->wait_layer(ticket, 0, 0.01));
  EXPECT_EQ(store->poll(ticket).state, TierState::busy);
  store->erase(ticket);
  EXPECT_EQ(store->loading_blocks(), 0);
  EXPECT_EQ(store->poll(ticket).state, TierState::failed);
  open_gate = true;
  EXPECT_EQ(store->find(chain_), 3);  // its replies follow those of the load
  for (const BlockId block : into_) EXPECT_TRUE(filled(block, 2));
}

// A lookup that was given up is no burden to the next one.
TEST_F(RedisStoreTest, ErasedLookupsAreForgotten) {
  store_chain();
  auto store = open(options());
  for (int i = 0; i < 20; ++i) store->erase(store->lookup(chain_));
  EXPECT_EQ(store->poll_lookup(1).state, TierState::failed);
  EXPECT_EQ(store->find(chain_), 3);
}

// A silent server is left alone for a while: lookups have their answer at once.
TEST_F(RedisStoreTest, ASilentServerCostsOneDeadline) {
  store_chain();
  RedisStoreOptions o = options(0.05);
  o.retry_seconds = 10;
  auto store = open(o);
  server_->answer([](const FakeRedis::Command& command, const std::string& reply) {
    return Answer{command[0] == "PING" ? reply : ""};
  });
  EXPECT_EQ(store->find(chain_), 0);
  EXPECT_FALSE(store->stats().connected);
  const TierTicket ticket = store->lookup(chain_);
  EXPECT_EQ(store->poll_lookup(ticket).state, TierState::ready);
}

}  // namespace
}  // namespace millrace
