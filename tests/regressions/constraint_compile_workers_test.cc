// Four requests for a regex that takes half a minute to compile blocked /health and every other request for that time,
// and used the processor even after their clients had left: constraints were compiled to the end, one by one, on the
// two threads that all requests share. The tests used constraints that compile at once.
#include <time.h>

#include <atomic>
#include <mutex>

#include "server/live_server.h"

namespace millrace {
namespace {

const char* const kYesOrNo = R"({"prompt": "Once", "max_tokens": 20, "guided_regex": "yes|no"})";

// A compilation that runs until the gate is opened or it is cancelled.
class Gate {
 public:
  ConstraintWorkers::Work work(const std::string& key, const std::string& tenant = "",
                               ErrorKind outcome = ErrorKind::internal) {
    return {.key = key,
            .tenant = tenant,
            .compile = [this, outcome](const CompileOrder& order) -> Result<CompiledConstraint> {
              ++begun;
              while (!open && !*order.cancelled) ::poll(nullptr, 0, 1);
              if (*order.cancelled) return Error::cancelled("cancelled");
              if (outcome != ErrorKind::internal) return Error{outcome, "refused"};
              return CompiledConstraint();
            },
            .done = [this](const Result<CompiledConstraint>& compiled) { ++(compiled.ok() ? good : bad); }};
  }
  std::atomic<bool> open{false};
  std::atomic<int> begun{0}, good{0}, bad{0};
};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double metric(int port, const std::string& name) {
  const std::string text = get(port, "/metrics").body, line = "\n" + name + " ";
  const size_t at = text.find(line);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size()));
}

TEST(ConstraintCompileWorkers, OtherRequestsAreServedDuringCompilation) {
  Gate gate;
  LiveServer live;
  ConstraintWorkers& workers = live.server->service().constraints();
  ASSERT_TRUE(workers.add(workers.new_ticket(), gate.work("slow")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 1; }));
  std::vector<std::unique_ptr<Client>> waiting;  // more clients than threads
  for (int i = 0; i < 6; ++i) {
    waiting.push_back(std::make_unique<Client>(live.port()));
    waiting.back()->post("/v1/completions", R"({"prompt": "Once", "max_tokens": 20, "guided_regex": "yes|no|[0-9]{)" +
                                                std::to_string(i + 1) + "}\"}");
  }
  ASSERT_TRUE(comes_true([&] { return metric(live.port(), "millrace_constraints_waiting") == 6; }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(get(live.port(), "/health").status, 200);
  const Json free =
      post(live.port(), "/v1/completions", R"({"prompt": "Once", "max_tokens": 30, "ignore_eos": true})").json();
  EXPECT_EQ(free["usage"]["completion_tokens"], 30);
  EXPECT_EQ(metric(live.port(), "millrace_constraints_waiting"), 6)
      << "the other requests were answered while these waited";
  gate.open = true;
  for (auto& client : waiting) EXPECT_EQ(client->response().status, 200);
  EXPECT_EQ(metric(live.port(), "millrace_constraints_waiting"), 0);
  EXPECT_EQ(metric(live.port(), "millrace_constraints_compiled_total"), 7);
}

TEST(ConstraintCompileWorkers, CompilationStopsWhenTheClientLeaves) {
  Gate gate;
  LiveServer live;
  ConstraintWorkers& workers = live.server->service().constraints();
  const auto ticket = workers.new_ticket();
  ASSERT_TRUE(workers.add(ticket, gate.work("slow")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 1; }));
  {
    Client client(live.port());
    client.post("/v1/completions", kYesOrNo);
    ASSERT_TRUE(comes_true([&] { return metric(live.port(), "millrace_constraints_waiting") == 1; }));
  }
  EXPECT_TRUE(comes_true([&] { return metric(live.port(), "millrace_constraints_cancelled_total") == 1; }));
  EXPECT_EQ(metric(live.port(), "millrace_constraints_waiting"), 0);
  workers.leave(ticket);  // the running compilation stops at its next check
  EXPECT_TRUE(comes_true([&] { return workers.counts().compiling == 0; }));
  EXPECT_EQ(workers.counts().cancelled, 2);
  EXPECT_EQ(gate.good + gate.bad, 0) << "no result is delivered to cancelled requests";
  EXPECT_EQ(post(live.port(), "/v1/completions", kYesOrNo).status, 200);
}

TEST(ConstraintCompileWorkers, EqualConstraintsAreCompiledOnce) {
  Gate gate;
  LiveServer live;
  ConstraintWorkers& workers = live.server->service().constraints();
  ASSERT_TRUE(workers.add(workers.new_ticket(), gate.work("slow")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 1; }));
  std::vector<std::unique_ptr<Client>> good, bad;
  for (int i = 0; i < 3; ++i) {
    good.push_back(std::make_unique<Client>(live.port()));
    good.back()->post("/v1/completions", kYesOrNo);
    bad.push_back(std::make_unique<Client>(live.port()));
    bad.back()->post("/v1/completions", R"({"prompt": "Once", "max_tokens": 20, "guided_regex": "(yes|no"})");
  }
  ASSERT_TRUE(comes_true([&] { return workers.counts().shared == 4; }));
  EXPECT_EQ(workers.counts().waiting, 2);
  good.pop_back();  // the other requests still need it
  ASSERT_TRUE(comes_true([&] { return metric(live.port(), "millrace_connections_answering") == 6; }))
      << "five, and who asks";
  gate.open = true;
  for (auto& client : good) {
    const Json text = client->response().json()["choices"][0]["text"];
    EXPECT_TRUE(text == "yes" || text == "no") << text;
  }
  for (auto& client : bad) {
    const Response refused = client->response();
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["param"], "guided_regex") << refused.body;
  }
  EXPECT_EQ(workers.counts().compiled, 2) << "one beside the slow one";
  EXPECT_EQ(workers.counts().refused, 1);
  EXPECT_EQ(post(live.port(), "/v1/completions", kYesOrNo).status, 200);
  EXPECT_EQ(workers.counts().known, 1) << "it is kept";
}

TEST(ConstraintCompileWorkers, TooManyAreRefusedInTheFormatOfTheApi) {
  Gate gate;
  LiveServer live;
  ConstraintWorkers& workers = live.server->service().constraints();
  ASSERT_TRUE(workers.add(workers.new_ticket(), gate.work("first")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 1; }));
  for (size_t i = 0; i < ConstraintWorkers::Limits().waiting; ++i)
    ASSERT_TRUE(workers.add(workers.new_ticket(), gate.work("slow" + std::to_string(i))).ok());
  const Response refused = post(live.port(), "/v1/completions", kYesOrNo);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_FALSE(refused.headers.at("retry-after").empty());
  EXPECT_EQ(post(live.port(), "/v1/messages",
                 R"({"model": "stories", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}]})")
                .status,
            200);
  EXPECT_EQ(metric(live.port(), "millrace_constraints_turned_away_total"), 1);
  gate.open = true;
  ASSERT_TRUE(comes_true([&] { return workers.counts().waiting == 0; }));
  EXPECT_EQ(post(live.port(), "/v1/completions", kYesOrNo).status, 200);
}

// A compilation that does not finish in its first attempt continues on another thread, and the next first attempt
// starts.
TEST(ConstraintCompileWorkers, ALongCompilationDoesNotDelayShortOnes) {
  std::atomic<bool> finished{false};
  Gate gate;
  ConstraintWorkers workers({.waiting = 8, .long_waiting = 1, .of_tenant = 8, .first_try = 0.005});
  const auto slow = [&](const std::string& key) {
    ConstraintWorkers::Work work = gate.work(key);
    work.compile = [whole = work.compile](const CompileOrder& order) -> Result<CompiledConstraint> {
      if (order.seconds == 0) return whole(order);
      for (const double until = thread_seconds() + 1.5 * order.seconds; thread_seconds() < until;) continue;
      return Error::unsupported("out of time");
    };
    return work;
  };
  ASSERT_TRUE(workers.add(workers.new_ticket(), slow("long")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 1; })) << "it has come to the long ones";
  EXPECT_EQ(workers.counts().long_ones, 1);
  ASSERT_TRUE(workers
                  .add(workers.new_ticket(),
                       {.key = "short",
                        .tenant = "",
                        .compile = [](const CompileOrder&) { return Result<CompiledConstraint>(CompiledConstraint()); },
                        .done = [&](const Result<CompiledConstraint>& compiled) { finished = compiled.ok(); }})
                  .ok());
  EXPECT_TRUE(comes_true([&] { return finished.load(); }));
  EXPECT_EQ(gate.good, 0);
  // The queue of long compilations has its own limit.
  ASSERT_TRUE(workers.add(workers.new_ticket(), slow("waits")).ok());
  ASSERT_TRUE(comes_true([&] { return workers.counts().long_ones == 2; }));
  EXPECT_EQ(gate.bad, 0);
  ASSERT_TRUE(workers.add(workers.new_ticket(), slow("too many")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.bad == 1; }));
  EXPECT_EQ(workers.counts().rejected, 1);
  gate.open = true;
  EXPECT_TRUE(comes_true([&] { return gate.good == 2; }));
}

TEST(ConstraintCompileWorkers, TenantsAreServedInTurnAndNoneFillsTheQueue) {
  Gate gate;
  std::mutex mutex;
  std::string order;
  ConstraintWorkers workers({.waiting = 8, .of_tenant = 4, .first_try = 10});
  ASSERT_TRUE(workers.add(workers.new_ticket(), gate.work("gate")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 1; }));
  const auto add = [&](const std::string& tenant, int number) {
    return workers
        .add(workers.new_ticket(),
             {.key = tenant + std::to_string(number),
              .tenant = tenant,
              .compile = [](const CompileOrder&) -> Result<CompiledConstraint> { return Error::user("syntax"); },
              .done =
                  [&, tenant](const Result<CompiledConstraint>&) {
                    std::lock_guard lock(mutex);
                    order += tenant;
                  }})
        .ok();
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(add("a", i));
  EXPECT_FALSE(add("a", 4));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(add("b", i));
  gate.open = true;
  ASSERT_TRUE(comes_true([&] {
    std::lock_guard lock(mutex);
    return order.size() == 6;
  }));
  EXPECT_EQ(order, "ababaa");
}

TEST(ConstraintCompileWorkers, StopCancelsRunningCompilationsAndFailsWaitingOnes) {
  Gate gate;
  {
    ConstraintWorkers workers;
    for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(workers.add(workers.new_ticket(), gate.work(key)).ok());
    ASSERT_TRUE(comes_true([&] { return gate.begun == 1; }));
  }
  EXPECT_EQ(gate.begun, 1);
  EXPECT_EQ(gate.good, 0);
  EXPECT_EQ(gate.bad, 3) << "waiting requests get an error";
}

}  // namespace
}  // namespace millrace
