#include "capi/options.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(CapiOptions, SetsFieldsOfEveryType) {
  const auto load = load_options({{"threads", "3"}, {"memory", "2K"}, {"pack", "load"}, {"use", "router=topk"}});
  ASSERT_TRUE(load.ok()) << load.error().message;
  EXPECT_EQ(load->threads, 3);
  EXPECT_EQ(load->memory, 2048);
  EXPECT_FALSE(load->pack_in_background);

  const auto engine = engine_options({{"max_streams", "2"},
                                      {"no_prefix_cache", "true"},
                                      {"state_stride", "128"},
                                      {"lora", "a=/a"},
                                      {"lora", "b=/b"},
                                      {"use", "kv_format=f32"},
                                      {"use", "store=ssd:path=a,order=importance,fetch=0.5"},
                                      {"use", "policy=vtc"}});
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_EQ(engine->engine.max_streams, 2);
  EXPECT_FALSE(engine->engine.prefix_cache);
  EXPECT_EQ(engine->engine.state_stride, 128);
  EXPECT_EQ(engine->engine.kv_store, "ssd:path=a,order=importance,fetch=0.5");
  EXPECT_EQ(engine->engine.adapters, (std::vector<std::string>{"a=/a", "b=/b"}));
  EXPECT_EQ(engine->engine.kv_format, "f32");
  EXPECT_EQ(engine->engine.policy, "vtc");
  EXPECT_EQ(engine->applied.size(), 3u);
}

TEST(CapiOptions, SetsARequest) {
  SamplingOptions own;
  own.top_k = 5;
  const auto request = request_options({{"max_tokens", "7"},
                                        {"seed", "18446744073709551615"},
                                        {"stop", "a"},
                                        {"stop", "b"},
                                        {"choice", "yes"},
                                        {"choice", "no"},
                                        {"adapter", "x=0.5"},
                                        {"use", "evictor=h2o:budget=64"},
                                        {"use", "sampler=min_p:min_p=0.25"}},
                                       own);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->request.max_tokens, 7);
  EXPECT_EQ(request->request.sampling.seed, 18446744073709551615u);
  EXPECT_EQ(request->request.sampling.top_k, 5);
  EXPECT_EQ(request->request.sampling.min_p, 0.25);
  EXPECT_EQ(request->request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request->request.constraint.kind, Constraint::Kind::choice);
  EXPECT_EQ(request->request.evictor, "h2o:budget=64");
  ASSERT_EQ(request->request.adapters.size(), 1u);
  EXPECT_EQ(request->request.adapters[0].name, "x");
  EXPECT_EQ(request->request.adapters[0].scale, 0.5);
}

TEST(CapiOptions, DefaultsAreThoseOfRun) {
  const auto request = request_options({}, {});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->request.max_tokens, 256);
  EXPECT_EQ(request->request.n, 1);
  EXPECT_EQ(request->request.early_stopping, EarlyStopping::no);
  const auto engine = engine_options({});
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(engine->engine.draft_length, "auto");
  EXPECT_TRUE(engine->engine.prefix_cache);
}

struct Refused {
  const char* name;
  const char* value;
  const char* message;  // a part
};

TEST(CapiOptions, RefusesWhatIsWrong) {
  for (const auto& [name, value, message] : {Refused{"threds", "1", "there are threads"},
                                             {"threads", "x", "threads: expected an integer"},
                                             {"threads", "2000", "between 0 and 1024"},
                                             {"memory", "lots", "memory"},
                                             {"pack", "never", "pack"},
                                             {"use", "policy=vtc", "not an option of a model"}}) {
    const auto done = load_options({{name, value}});
    ASSERT_FALSE(done.ok()) << name;
    EXPECT_EQ(done.error().kind, ErrorKind::user);
    EXPECT_NE(done.error().message.find(message), std::string::npos) << done.error().message;
  }
  EXPECT_FALSE(engine_options({{"use", "router=topk"}}).ok());
  EXPECT_FALSE(engine_options({{"use", "sampler=greedy"}}).ok());
  EXPECT_FALSE(request_options({{"use", "kv_format=f32"}}, {}).ok());
  EXPECT_FALSE(request_options({{"regex", "a"}, {"choice", "b"}}, {}).ok());
  EXPECT_FALSE(request_options({{"constraint_trigger", "a"}}, {}).ok());
  EXPECT_FALSE(request_options({{"early_stopping", "maybe"}}, {}).ok());
  EXPECT_FALSE(request_options({{"adapter", "a=b"}}, {}).ok());
  EXPECT_EQ(request_options({{"use", "prompt=selective_context:ratio=0.5"}}, {}).error().kind, ErrorKind::unsupported);
}

TEST(CapiOptions, CopiesPairs) {
  const millrace_option pairs[] = {{"max-tokens", "3"}};
  const auto given = given_options(pairs, 1);
  ASSERT_TRUE(given.ok());
  EXPECT_EQ(*given, (GivenOptions{{"max_tokens", "3"}}));
  const millrace_option broken[] = {{"a", nullptr}};
  EXPECT_FALSE(given_options(broken, 1).ok());
  EXPECT_FALSE(given_options(nullptr, 1).ok());
  EXPECT_TRUE(given_options(nullptr, 0).ok());
}

}  // namespace
}  // namespace millrace
