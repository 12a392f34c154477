// The attention mass of a step is computed from the same keys as the step's attention: keys that are being loaded from
// a store while the step runs are waited for first.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "model_runner.h"
#include "models/mass_observer.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

// Calls a function before each layer's keys are read.
struct Arrival final : ForwardObserver {
  std::function<void(int64_t)> arrive;
  void before_attention(int64_t layer) override { arrive(layer); }
};

TEST(AttentionMass, WaitsForKeysBeingLoaded) {
  auto loaded = TestRunner::load(golden_model("llama"), {.block_tokens = 8});
  ASSERT_TRUE(loaded.ok());
  TestRunner& runner = **loaded;
  const auto prompt = make_request(1, 40, 1, runner.model().spec().vocab).prompt;
  const auto before = std::span(prompt).first(32), last = std::span(prompt).subspan(32);
  const int64_t layers = runner.model().spec().layer_count(), heads = runner.model().spec().kv_heads;
  const auto keys = [&](int64_t layer, int64_t head) { return runner.kv().keys(layer, runner.blocks()[1], head); };
  for (int64_t layer = 0; layer < layers; ++layer) {
    MassObserver observer;
    AttentionMass& mass = observer.mass;
    Arrival arrival;
    ForwardHooks& hooks = runner.runner().hooks();
    hooks.add(observer);  // first: it is called after all keys are there nevertheless
    runner.step(before, 0);
    mass.layer = layer;
    mass.spans = {0};
    runner.step(last, 32);
    const std::vector<float> expected = mass.mass;
    ASSERT_EQ(expected.size(), 5u);

    const auto bytes = static_cast<size_t>(8 * runner.kv().row_bytes(layer));
    std::vector<uint8_t> there;
    for (int64_t head = 0; head < heads; ++head) {
      there.insert(there.end(), keys(layer, head), keys(layer, head) + bytes);
      std::memset(keys(layer, head), 0, bytes);
    }
    arrival.arrive = [&](int64_t ready) {
      if (ready != layer) return;
      for (int64_t head = 0; head < heads; ++head)
        std::memcpy(keys(layer, head), there.data() + static_cast<size_t>(head) * bytes, bytes);
    };
    hooks.add(arrival);
    runner.step(last, 32);
    hooks.remove(arrival);
    hooks.remove(observer);
    EXPECT_EQ(mass.mass, expected) << "layer " << layer;
  }
}

}  // namespace
}  // namespace millrace
