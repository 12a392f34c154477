// trainable() names the first part of a spec that the training pass does not have.
#include "learn/lab_spec.h"

#include <gtest/gtest.h>

#include "learn/lab_trainer.h"
#include "loader/model_files.h"
#include "models/arch.h"
#include "test_paths.h"

namespace millrace {
namespace {

// The reason for refusing a lab model that `change` has changed.
template <typename Change>
std::string untrainable_lab(const char* size, const Change& change) {
  ArchSpec spec = *lab_spec(size);
  change(spec);
  const auto checked = trainable(spec);
  return checked.ok() ? "" : checked.error().message;
}

TEST(LabSpec, AllSizesOfTrainLabAreTrainable) {
  for (const char* size : {"lab", "lab-draft", "lab-relu", "lab-mha", "lab-experts", "stories-long"})
    EXPECT_EQ(untrainable_lab(size, [](ArchSpec&) {}), "") << size;
}

// Those that libtorch trained, too (docs/decisions/0064-libtorch-stays-for-one-recipe.md).
TEST(LabSpec, TheStoriesModelsAreTrainable) {
  for (const auto& [name, parameters] :
       {std::pair("millrace-stories-6m", 5'475'584), std::pair("millrace-stories-1m-draft", 1'078'144)}) {
    const auto files = open_model_files(std::string(MILLRACE_SOURCE_DIR "/models/") + name + ".gguf");
    ASSERT_TRUE(files.ok()) << files.error().message;
    const auto spec = read_arch_spec(*files);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_TRUE(trainable(*spec).ok()) << trainable(*spec).error().message;
    EXPECT_EQ(trained_parameters(*spec), parameters);
  }
}

TEST(LabSpec, TrainableNamesWhatItCannotTrain) {
  EXPECT_EQ(untrainable_lab("lab", [](ArchSpec& s) { s.vocab = 1000; }),
            "a vocabulary of 1000; it must be a multiple of 32 up to 131072");
  EXPECT_EQ(untrainable_lab("lab", [](ArchSpec& s) { s.layers.clear(); }), "0 layers");
  EXPECT_EQ(untrainable_lab("lab", [](ArchSpec& s) { s.activation = HiddenActivation::gelu_tanh; }),
            "activations other than silu and relu");
  EXPECT_EQ(untrainable_lab("lab", [](ArchSpec& s) { s.qk_norm = QkNorm::head; }), "norms of queries and keys");
  EXPECT_EQ(untrainable_lab("lab", [](ArchSpec& s) { s.ropes[0].scaling = RopeSpec::Scaling::yarn; }),
            "scaled rotations");
  EXPECT_EQ(untrainable_lab("lab", [](ArchSpec& s) { s.layers[0].window = 128; }), "a window of 128 tokens");
  EXPECT_EQ(untrainable_lab("lab", [](ArchSpec& s) { s.layers[3].hidden = 256; }),
            "layers that differ from each other");
  EXPECT_EQ(untrainable_lab("lab-experts", [](ArchSpec& s) { s.layers[0].experts.used = 3; }),
            "a token uses 3 experts, and it trains models that use 2");
  EXPECT_EQ(untrainable_lab("lab", [](ArchSpec& s) { complete_llama(s, int64_t{1} << 60, 50000); }), "0 layers");
}

}  // namespace
}  // namespace millrace
