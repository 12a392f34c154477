// QuIP#'s tensors become a matrix and its parts; damaged ones are refused with the tensor and the reason. Whole models:
// tests/golden/quantized_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "contains.h"
#include "loader/quantized/test_values.h"

namespace millrace {
namespace {

using testing::Bytes;
using testing::ones;
using testing::SafetensorsBytes;
using testing::TemporaryFolder;
using testing::values_of;

constexpr const char* kE8p12 = R"({"codebook":"E8P12","codebook_version":1,"lora_rank":0})";
constexpr const char* kQuip = R"("num_attention_heads":2,"num_key_value_heads":1,"head_dim":12,"quip_params":)";

// 48 rows of 64 columns, which are fused of this many matrices.
SafetensorsBytes quip_sharp(int64_t words = 2, int fused = 3, int64_t id = 7, int64_t rows = 48) {
  SafetensorsBytes out;
  Bytes one;
  one.put(id);
  const auto count = static_cast<size_t>(rows * words);
  out.add("a.Qidxs", "I64", fmt::format("[{},{}]", rows, words), Bytes().zeros(8 * count));
  out.add("a.SU", "F32", "[64]", ones(64));
  out.add("a.SV", "F32", fmt::format("[{}]", rows), ones(static_cast<size_t>(rows)))
      .add("a.Wscale", "F32", "[]", ones(1));
  if (fused > 0) out.add("a.fuse_scales", "F32", fmt::format("[{}]", fused), ones(static_cast<size_t>(fused)));
  return out.add("a.codebook_id", "I64", "[]", one);
}

Result<ModelFiles> open(const char* parameters, const SafetensorsBytes& tensors) {
  const TemporaryFolder folder;
  folder.write("config.json", std::string(R"({"model_type":"llama",)") + kQuip + parameters + "}");
  folder.write("model.safetensors", tensors.string());
  return open_model_files(folder.path());
}

TEST(QuipSharp, DamagedFilesAreRefused) {
  auto whole = open(kE8p12, quip_sharp());
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->tensors.size(), 5u);  // the matrix, and scale and transform of its input and its output
  EXPECT_EQ(values_of(*whole->find("a.input_hadamard")), (std::vector<float>{64}));
  EXPECT_EQ(values_of(*whole->find("a.output_hadamard")), (std::vector<float>{4, 12}));
  EXPECT_EQ(values_of(*whole->find("a.weight"))[0], 0.75f);  // code 0: 1/2 + 1/4
  const auto refused = [&](const char* parameters, const SafetensorsBytes& tensors,
                           ErrorKind kind = ErrorKind::corrupt) {
    auto model = open(parameters, tensors);
    if (model.ok()) return std::string("(accepted)");
    EXPECT_EQ(model.error().kind, kind) << model.error().message;
    return model.error().message;
  };
  EXPECT_CONTAINS(refused(kE8p12, quip_sharp(3)), "must be I64, 48 x 2");
  EXPECT_CONTAINS(refused(kE8p12, quip_sharp(2, 4)), "has 4 values, which fit no parts of 48 rows");
  EXPECT_CONTAINS(refused(kE8p12, quip_sharp(2, 3, 7, 64)), "has 3 values, which fit no parts of 64 rows");
  EXPECT_CONTAINS(refused(kE8p12, quip_sharp(2, 3, 17)), "is 17; E8P12 has 7");
  EXPECT_CONTAINS(refused(kE8p12, quip_sharp(2, 0, 7, 40)), "40 x 64 weights are not whole blocks of 16 x 64");
  EXPECT_CONTAINS(refused(kE8p12, quip_sharp(2, 0, 7, 112 * 3), ErrorKind::unsupported),
                  "there is no Hadamard matrix for 336 values");
  EXPECT_CONTAINS(refused(R"({"codebook":"E8P12RVQ3B"})", quip_sharp()), "must be I64, 48 x 3");
  EXPECT_CONTAINS(refused(R"({"codebook":"E8P12RVQ4B","codebook_version":1})", quip_sharp()), "must be I64, 48 x 4");
  EXPECT_CONTAINS(refused(R"({"codebook":"E8P12"})", quip_sharp(), ErrorKind::unsupported),
                  "key 'quip_params': codebook_version must be 1");
  EXPECT_CONTAINS(refused(R"({"codebook":"D4"})", quip_sharp(), ErrorKind::unsupported), "the codebook must be E8P12");
  EXPECT_CONTAINS(
      refused(R"({"codebook":"E8P12","codebook_version":1,"lora_rank":8})", quip_sharp(), ErrorKind::unsupported),
      "lora_rank");
  EXPECT_CONTAINS(refused("7", quip_sharp(), ErrorKind::unsupported), "must be an object");
}

}  // namespace
}  // namespace millrace
