// A lab model as the trainer computes it and as the engine computes its exported file: the same logits, within the
// rounding of the trainer's bfloat16 factors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "learn/lab_mixture.h"
#include "learn/lab_trainer.h"
#include "model_runner.h"

namespace millrace {
namespace {

struct LabMlp {
  int64_t experts;
  LabGate gate;
};

class LabModelExport : public ::testing::TestWithParam<LabMlp> {};

TEST_P(LabModelExport, TheEngineComputesTheTrainersLogits) {
  LabShape shape;
  shape.vocab = 512;
  shape.dim = 64;
  shape.layers = 2;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.hidden = 64;
  shape.experts = GetParam().experts;
  shape.gate = GetParam().gate;
  LabModel model(shape, 5);
  for (float& value : model.weights()) value *= 1.5f;  // norms too: none of them stays 1
  const auto spec = learn_lab_vocabulary({}, shape.vocab);
  ASSERT_TRUE(spec.ok());
  const std::string path =
      (std::filesystem::temp_directory_path() / ("millrace_lab_" + std::to_string(::getpid()) + ".gguf")).string();
  ASSERT_TRUE(export_lab_gguf(model, *spec, "test", "f32", path).ok());
  auto runner = testing::TestRunner::load(path, {});
  std::filesystem::remove(path);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  LabBatch batch;
  batch.starts = {0};
  for (int64_t i = 0; i < 70; ++i) {
    batch.ids.push_back(static_cast<TokenId>(i * 37 % 512));
    batch.targets.push_back(0);
    batch.weights.push_back(1);
  }
  ThreadPool pool(1);
  LabPass pass(model, pool, training_kernels());
  const std::vector<float> expected = pass.logits(batch), found = (*runner)->logits(batch.ids);
  ASSERT_EQ(expected.size(), found.size());
  std::vector<double> errors;  // of each token; where two experts are nearly equal, rounding may choose another
  for (size_t row = 0; row < batch.ids.size(); ++row) {
    double difference = 0, squares = 0;
    for (size_t i = row * 512; i < (row + 1) * 512; ++i) {
      difference += std::pow(expected[i] - found[i], 2);
      squares += std::pow(found[i], 2);
    }
    errors.push_back(std::sqrt(difference / squares));
  }
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() / 2], 0.04);
  if (GetParam().experts == 0) {
    EXPECT_LT(errors.back(), 0.08);
  }
}

INSTANTIATE_TEST_SUITE_P(Mlps, LabModelExport,
                         ::testing::Values(LabMlp{0, LabGate::silu}, LabMlp{4, LabGate::silu},
                                           LabMlp{0, LabGate::relu}));

}  // namespace
}  // namespace millrace
