// Gates that choose what a layer stores and sees, against an independent reference that computes every layer for all
// tokens at once and masks (make_gates.py), in both file kinds and in chunks of any size.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/engine_core.h"
#include "evicted_text.h"
#include "golden/expected.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::decode_floats;
using testing::EvictedText;
using testing::relative_error;

struct GateCase {
  const char* expected;  // key of expected.json
  const char* evictor;
};

class Gates : public ::testing::TestWithParam<GateCase> {
 protected:
  Gates() : folder_(fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/gates") {
    json_ = nlohmann::json::parse(testing::read_file(folder_ / "expected.json"));
    tokens_ = json_["tokens"].get<std::vector<TokenId>>();
  }

  fs::path folder_;
  nlohmann::json json_;
  std::vector<TokenId> tokens_;
};

TEST_P(Gates, MatchTheReferenceInBothFileKinds) {
  const auto& expected = json_[GetParam().expected];
  const auto logits = decode_floats(expected["logits"].get<std::string>());
  for (const fs::path& path : {folder_, folder_ / "model.gguf"}) {
    auto model = LanguageModel::load(path.string(), {.threads = 1, .context = 128});
    ASSERT_TRUE(model.ok()) << model.error().message;
    std::vector<float> first;
    for (const int64_t chunk : {48, 1, 7, 16})
      for (const char* rest : {"slack=16", "slack=1,prompt=evicted", "slack=5,prompt=evicted"}) {
        SCOPED_TRACE(path.string() + " " + std::to_string(chunk) + " " + rest);
        EvictedText text(**model, std::string(GetParam().evictor) + rest, std::ssize(tokens_), chunk);
        const std::vector<float> got = text.all(tokens_);
        ASSERT_EQ(got.size(), logits.size());
        EXPECT_LT(relative_error(got, logits), 1e-4);
        std::vector<int64_t> staying;
        for (int64_t layer = 0; layer < text.eviction().layers(); ++layer)
          staying.push_back(std::ranges::count(text.eviction().gated(layer).ends(), GatedTokens::kStays));
        EXPECT_EQ(staying, expected["staying"].get<std::vector<int64_t>>());
        if (first.empty()) first = got;
        EXPECT_EQ(std::memcmp(got.data(), first.data(), first.size() * sizeof(float)), 0);
      }
  }
}

TEST_P(Gates, AreWhatTheEngineSamplesFrom) {
  auto model = LanguageModel::load((folder_ / "model.gguf").string(), {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok());
  EngineOptions options;
  options.threads = 2;
  options.context = 128;
  options.batch_tokens = 20;
  options.kv_format = "f32";
  options.evictor = std::string(GetParam().evictor) + "slack=8,prompt=evicted";
  auto core = EngineCore::create(*model, options);
  ASSERT_TRUE(core.ok()) << core.error().message;
  Request request;
  request.prompt = tokens_;
  request.max_tokens = 1;
  ASSERT_TRUE((*core)->add(1, std::move(request)).ok());
  std::vector<float> row;
  std::vector<TokenEvent> events;
  const auto vocab = static_cast<size_t>((*model)->info().vocab);
  while (!(*core)->idle()) {
    (*core)->step(events);
    if (!events.empty() && row.empty()) row.assign((*core)->last_logits(), (*core)->last_logits() + vocab);
  }
  const auto logits = decode_floats(json_[GetParam().expected]["logits"].get<std::string>());
  EXPECT_LT(relative_error(row, {logits.end() - static_cast<ptrdiff_t>(vocab), logits.end()}), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Gates,
                         ::testing::Values(GateCase{"pairs", "adaptively_sparse:"}, GateCase{"selection", "seqboat:"},
                                           GateCase{"windowed", "seqboat:window=5,"}),
                         [](const auto& one) { return std::string(one.param.expected); });

}  // namespace
}  // namespace millrace
