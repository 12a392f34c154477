// A lab model as the trainer computes it and as the engine computes its exported file: the same logits, within the
// rounding of the trainer's bfloat16 factors, and without it within that of F32 sums in another order.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "learn/lab_mixture.h"
#include "learn/lab_trainer.h"
#include "model_runner.h"

namespace millrace {
namespace {

struct LabMlp {
  int64_t experts;
  HiddenActivation activation;
};

class LabModelExport : public ::testing::TestWithParam<LabMlp> {
 protected:
  static constexpr int64_t kVocab = 512, kTokens = 70;

  void SetUp() override {
    ArchSpec spec;
    spec.vocab = kVocab;
    spec.context = 2048;
    spec.width = spec.hidden = spec.moe.hidden = 64;
    spec.heads = 2;
    spec.kv_heads = 1;
    spec.moe.experts = GetParam().experts;
    spec.activation = GetParam().activation;
    complete_llama(spec, 2, 50000);
    model_.emplace(spec, 5);
    for (float& value : model_->weights()) value *= 1.5f;  // norms too: none of them stays 1
    batch_.starts = {0};
    for (int64_t i = 0; i < kTokens; ++i) {
      batch_.ids.push_back(static_cast<TokenId>(i * 37 % kVocab));
      batch_.targets.push_back(0);
      batch_.weights.push_back(1);
    }
  }

  // Logits of the engine, from the exported file with F32 weights.
  Result<std::vector<float>> engine_logits() const {
    MILLRACE_TRY(const TokenizerSpec vocabulary, learn_lab_vocabulary({}, kVocab));
    const std::string path =
        (std::filesystem::temp_directory_path() / ("millrace_lab_" + std::to_string(::getpid()) + ".gguf")).string();
    MILLRACE_TRY_VOID(export_lab_gguf(*model_, vocabulary, "test", "f32", path));
    auto runner = testing::TestRunner::load(path, {});
    std::filesystem::remove(path);
    if (!runner.ok()) return runner.error();
    return (*runner)->logits(batch_.ids);
  }

  // Relative errors of each token's logits, the smallest first.
  template <typename Factor>
  std::vector<double> errors(const TrainingKernelsOf<Factor>& kernels) {
    const auto found = engine_logits();
    EXPECT_TRUE(found.ok()) << found.error().message;
    if (!found.ok()) return {};
    ThreadPool pool(1);
    const std::vector<float> expected = LabPass(*model_, pool, kernels).logits(batch_);
    EXPECT_EQ(expected.size(), found->size());
    std::vector<double> out;
    for (size_t row = 0; row < batch_.ids.size(); ++row) {
      double difference = 0, squares = 0;
      for (size_t i = row * kVocab; i < (row + 1) * kVocab; ++i) {
        difference += std::pow(expected[i] - (*found)[i], 2);
        squares += std::pow((*found)[i], 2);
      }
      out.push_back(std::sqrt(difference / squares));
    }
    std::ranges::sort(out);
    return out;
  }

  std::optional<LabModel> model_;
  LabBatch batch_;
};

// Where two experts are nearly equal, rounding may choose another.
TEST_P(LabModelExport, TheEngineComputesTheTrainersLogits) {
  const std::vector<double> found = errors(training_kernels());
  ASSERT_EQ(std::ssize(found), kTokens);
  EXPECT_LT(found[found.size() / 2], 0.04);
  if (GetParam().experts == 0) {
    EXPECT_LT(found.back(), 0.08);
  }
}

// One definition of the model: the exact pass and the engine differ in the order of their F32 sums alone.
TEST_P(LabModelExport, TheEngineComputesTheExactPassesLogits) {
  const std::vector<double> found = errors(exact_training_kernels());
  ASSERT_EQ(std::ssize(found), kTokens);
  EXPECT_LT(found.back(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Mlps, LabModelExport,
                         ::testing::Values(LabMlp{0, HiddenActivation::silu}, LabMlp{4, HiddenActivation::silu},
                                           LabMlp{0, HiddenActivation::relu}));

}  // namespace
}  // namespace millrace
