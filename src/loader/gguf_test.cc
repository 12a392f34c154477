#include "loader/gguf.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "base/ordered_json.h"
#include "contains.h"
#include "formats/format.h"
#include "loader/model_files.h"
#include "loader/test_bytes.h"
#include "shared_data.h"

namespace millrace {
namespace {

using testing::Bytes;
using Type = GgufValueType;

Bytes whole_model() {
  Bytes file;
  file.gguf(2, 10);
  file.key("llama.block_count", Type::u32).put(uint32_t{2});
  file.key("llama.rope.freq_base", Type::f32).put(10000.0f);
  file.key("general.flag", Type::boolean).put(uint8_t{1});
  file.key("general.tags", Type::array).put(Type::string).put(uint64_t{2}).text("a").text("b");
  file.key("tokenizer.ggml.model", Type::string).text("llama");
  file.key("tokenizer.ggml.tokens", Type::array).put(Type::string).put(uint64_t{4});
  file.text("<unk>").text("<s>").text("</s>").text("<|im_end|>");
  file.key("tokenizer.ggml.scores", Type::array).put(Type::f32).put(uint64_t{4});
  file.put(0.0f).put(0.0f).put(0.0f).put(-1.0f);
  file.key("tokenizer.ggml.token_type", Type::array).put(Type::i32).put(uint64_t{4});
  file.put(int32_t{2}).put(int32_t{3}).put(int32_t{3}).put(int32_t{3});
  file.key("tokenizer.chat_template", Type::string).text("{{ x }}");
  file.key("tokenizer.chat_template.tool_use", Type::string).text("{{ y }}");
  file.info("a.weight", {4, 2}, 0, 0).info("b.weight", {32, 3}, 8, 32).pad(32);
  for (int i = 0; i < 8; ++i) file.put(static_cast<float>(i));
  return file.zeros(3 * 34);
}

// Gemma 4's files name their tokenizer after the model, and no pre-tokenizer.
TEST(Gguf, ReadsTheTokenizerOfGemma4) {
  Bytes file;
  file.gguf(0, 2);
  file.key("tokenizer.ggml.model", Type::string).text("gemma4");
  file.key("tokenizer.ggml.tokens", Type::array).put(Type::string).put(uint64_t{2}).text("a").text("b");
  const auto opened = open_gguf_image(file.pad(32).view(), "test.gguf");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ASSERT_TRUE(opened->tokenizer);
  EXPECT_EQ(opened->tokenizer->kind, "bpe");
  EXPECT_EQ(opened->tokenizer->pre, "gemma4");
}

TEST(Gguf, ReadsACompleteModel) {
  Bytes file = whole_model();
  auto opened = open_gguf_image(file.view(), "test.gguf");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const ModelFiles& model = *opened;
  EXPECT_EQ(model.architecture, "llama");
  EXPECT_EQ((*model.config)["llama.block_count"], 2);
  EXPECT_EQ((*model.config)["general.flag"], true);
  EXPECT_EQ((*model.config)["general.tags"].dump(), R"(["a","b"])");
  EXPECT_FALSE(model.config->contains("tokenizer.ggml.tokens"));
  EXPECT_EQ(model.chat_template, "{{ x }}");
  EXPECT_EQ(model.named_templates.at("tool_use"), "{{ y }}");

  ASSERT_EQ(model.tensors.size(), 2u);
  const StoredTensor* a = model.find("a.weight");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->tensor.rank, 2);
  EXPECT_EQ(a->tensor.dims[0], 2);
  EXPECT_EQ(a->tensor.dims[1], 4);
  EXPECT_EQ(a->type_name, "F32");
  float value = 0;
  std::memcpy(&value, a->tensor.data + 5 * sizeof(float), sizeof(value));
  EXPECT_EQ(value, 5.0f);
  const StoredTensor* b = model.find("b.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->tensor.bytes, 102);
  EXPECT_EQ(b->tensor.format, find_format("q8_0"));
  EXPECT_EQ(model.find("c"), nullptr);

  ASSERT_TRUE(model.tokenizer.has_value());
  EXPECT_EQ(model.tokenizer->kind, "spm");
  EXPECT_EQ(model.tokenizer->tokens[1], "<s>");
  EXPECT_TRUE(model.tokenizer->add_bos);  // by convention
  EXPECT_EQ(model.tokenizer->bos, 1);
  EXPECT_EQ(model.tokenizer->eos, 2);
  EXPECT_EQ(model.tokenizer->eog, (std::vector<TokenId>{2, 3}));
}

// The scales of NVFP4 matrices, which llama.cpp's converter writes beside them.
TEST(Gguf, AttachesScalesOfWholeMatrices) {
  const auto open = [](const std::vector<float>& scales, const char* name = "a.scale") {
    Bytes file;
    file.gguf(4, 0).info("a.weight", {64, 2, 2}, 40, 0).info(name, {scales.size()}, 0, 160);
    file.info("a.input_scale", {1}, 0, 192).info("b.input_scale", {1}, 0, 224).pad(32).zeros(160);
    for (float scale : scales) file.put(scale);
    file.zeros(32 - 4 * scales.size()).zeros(64);
    auto model = open_gguf_image(file.view(), "test.gguf");
    return model.ok() ? Result<ModelFiles>(std::move(*model)) : model.error();
  };
  const auto model = open({2.0f, 0.5f});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const StoredTensor* matrix = model->find("a.weight");
  EXPECT_EQ(matrix->scales.values, (std::vector<float>{2.0f, 0.5f}));
  EXPECT_EQ(matrix->scales.block_rows, 2);
  EXPECT_EQ(matrix->scales.block_cols, 64);
  EXPECT_EQ(model->tensors.size(), 2u);  // with b.input_scale, beside no such matrix
  EXPECT_CONTAINS(open({2.0f}).error().message, "is F32 with 1 values; 'a.weight' needs F32 with 2");
  EXPECT_CONTAINS(open({2.0f, std::numeric_limits<float>::infinity()}).error().message, "not finite");
  EXPECT_TRUE(open({2.0f}, "c.scale")->find("a.weight")->scales.values.empty());
}

TEST(Gguf, KnowsTheGeometryOfEveryFormat) {
  for (const Format* format : formats().members()) {
    if (format->gguf_type < 0) continue;
    const GgufType* type = find_gguf_type(static_cast<uint32_t>(format->gguf_type));
    ASSERT_NE(type, nullptr) << format->name;
    EXPECT_EQ(type->block_values, format->block_values) << format->name;
    EXPECT_EQ(type->block_bytes, format->block_bytes) << format->name;
  }
}

TEST(Gguf, ReadsRealVocabularies) {
  MILLRACE_NEEDS_SHARED("tokenizers/llama.cpp/ggml-vocab-phi-3.gguf.xz");
  std::string raw = testing::read_maybe_xz(testing::shared_data() / "tokenizers/llama.cpp/ggml-vocab-phi-3.gguf.xz");
  auto model = open_gguf_image({reinterpret_cast<const uint8_t*>(raw.data()), raw.size()}, "phi-3");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->architecture, "phi3");
  EXPECT_EQ(model->tokenizer->tokens.size(), 32064u);
  EXPECT_EQ(model->tokenizer->eos, 32000);
  EXPECT_FALSE(model->chat_template.empty());
}

}  // namespace
}  // namespace millrace
