#include "loader/hf_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/ordered_json.h"
#include "contains.h"
#include "formats/format.h"
#include "loader/test_bytes.h"
#include "shared_data.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using testing::Bytes;
using testing::SafetensorsBytes;
using testing::TemporaryFolder;

Bytes floats(const std::vector<float>& values) {
  Bytes bytes;
  for (float value : values) bytes.put(value);
  return bytes;
}

std::vector<float> decoded(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  tensor.format->decode(tensor.data, values.data(), tensor.values());
  return values;
}

std::string small_weights() { return SafetensorsBytes().add("w", "F32", "[2]", floats({1, 2})).string(); }

std::string error_of(const std::string& path, ErrorKind kind = ErrorKind::corrupt) {
  auto model = open_model_files(path);
  if (model.ok()) return "(accepted)";
  EXPECT_EQ(model.error().kind, kind) << model.error().message;
  EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
  return model.error().message;
}

TEST(HuggingFace, ReadsAFolder) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"architectures":["LlamaForCausalLM"],"hidden_size":2,"model_type":"llama"})");
  folder.write("model.safetensors", small_weights());
  folder.write("generation_config.json", R"({"temperature":0.6,"top_p":0.9,"top_k":40,"repetition_penalty":1.1})");
  folder.write("tokenizer_config.json",
               R"({"chat_template":[{"name":"default","template":"A"},{"name":"rag","template":"B"}]})");
  folder.write("additional_chat_templates/tool_use.jinja", "C");
  for (const std::string& path : {folder.path(), folder.path("model.safetensors")}) {
    auto model = open_model_files(path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->kind, ModelFiles::Kind::huggingface);
    EXPECT_EQ(model->architecture, "LlamaForCausalLM");
    EXPECT_EQ((*model->config)["hidden_size"], 2);
    EXPECT_EQ(decoded(model->find("w")->tensor), (std::vector<float>{1, 2}));
    EXPECT_EQ(model->generation.temperature, 0.6);
    EXPECT_EQ(model->generation.top_k, 40);
    EXPECT_EQ(model->generation.min_p, std::nullopt);
    EXPECT_EQ(model->chat_template, "A");
    EXPECT_EQ(model->named_templates.at("rag"), "B");
    EXPECT_EQ(model->named_templates.at("tool_use"), "C");
    EXPECT_FALSE(model->tokenizer.has_value());
  }
}

TEST(HuggingFace, PrefersTheTemplateFile) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"model_type":"qwen3"})");
  folder.write("model.safetensors", small_weights());
  folder.write("tokenizer_config.json", R"({"chat_template":"old"})");
  folder.write("chat_template.jinja", "new");
  auto model = open_model_files(folder.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->architecture, "qwen3");  // without architectures the model type is used
  EXPECT_EQ(model->chat_template, "new");
}

TEST(HuggingFace, OpensFromAnyShard) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"model_type":"llama"})");
  folder.write("model-00001-of-00002.safetensors",
               SafetensorsBytes().add("a", "F32", "[1]", floats({1})).add("stray", "F32", "[1]", floats({9})).string());
  folder.write("model-00002-of-00002.safetensors", SafetensorsBytes().add("b", "F32", "[1]", floats({2})).string());
  folder.write("model.safetensors.index.json",
               R"({"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
               R"("b":"model-00002-of-00002.safetensors"}})");
  for (const char* name : {"", "model.safetensors.index.json", "model-00002-of-00002.safetensors"}) {
    auto model = open_model_files(folder.path(name));
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->tensors.size(), 2u);
    EXPECT_EQ(model->files.size(), 2u);
    EXPECT_EQ(decoded(model->find("b")->tensor), std::vector<float>{2});
    EXPECT_EQ(model->files[model->find("b")->file]->path(), folder.path("model-00002-of-00002.safetensors"));
  }
}

TEST(HuggingFace, RefusesABadIndex) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"model_type":"llama"})");
  folder.write("s.safetensors", small_weights());
  auto index_error = [&](const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    return error_of(folder.path());
  };
  EXPECT_CONTAINS(index_error("{}"), "'weight_map' must be an object");
  EXPECT_CONTAINS(index_error("[]"), "is not a JSON object");
  EXPECT_CONTAINS(index_error("{"), "not valid JSON at offset");
  EXPECT_CONTAINS(index_error(R"({"weight_map":{"w":1}})"), "its shard is not a string");
  EXPECT_CONTAINS(index_error(R"({"weight_map":{"w":"s.safetensors","w":"s.safetensors"}})"), "key 'w' appears twice");
  EXPECT_CONTAINS(index_error(R"({"weight_map":{"x":"s.safetensors"}})"),
                  "tensor 'x' is not in its shard 's.safetensors'");
  EXPECT_CONTAINS(index_error(R"({"weight_map":{"x":"gone.safetensors"}})"), "gone.safetensors: cannot open");
  for (const char* escape : {"../s.safetensors", "/etc/passwd", "..", "", "a/../../s", "s\\u0000", "d\\\\s"}) {
    EXPECT_CONTAINS(index_error(std::string(R"({"weight_map":{"w":")") + escape + "\"}}"),
                    "is not the name of a file in the same folder");
  }
}

TEST(HuggingFace, RefusesABadFolder) {
  TemporaryFolder folder;
  EXPECT_CONTAINS(error_of(folder.path()), "config.json: is missing");
  folder.write("config.json", R"({"model_type":"llama"})");
  EXPECT_CONTAINS(error_of(folder.path()), "contains 0 .safetensors files");
  folder.write("pytorch_model.bin", "x");
  EXPECT_CONTAINS(error_of(folder.path(), ErrorKind::unsupported), "pickle");
  folder.write("model.safetensors", small_weights());
  EXPECT_EQ(error_of(folder.path()), "(accepted)");
  folder.write("config.json", R"({"architectures":[],"model_type":3})");
  EXPECT_CONTAINS(error_of(folder.path()), "has no architecture in");
  folder.write("config.json", "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}");
  EXPECT_CONTAINS(error_of(folder.path()), "nests deeper than 64");
  folder.write("config.json", R"({"model_type":"llama","quantization_config":{"quant_method":"quark","bits":4}})");
  EXPECT_CONTAINS(error_of(folder.path(), ErrorKind::unsupported), "'quark'");
  folder.write("config.json", R"({"model_type":"llama"})");
  folder.write("tokenizer_config.json", R"({"chat_template":5})");
  EXPECT_CONTAINS(error_of(folder.path()), "'chat_template': is not a string");
  EXPECT_CONTAINS(error_of(folder.path("absent.gguf")), "cannot open");
}

// 130 x 200 with 128 x 128 blocks: 2 x 2 scales.
TEST(HuggingFace, ReadsFp8BlockScales) {
  TemporaryFolder folder;
  folder.write("config.json",
               R"({"model_type":"llama","quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}})");
  auto weights = [&](const std::vector<float>& scales, const char* shape, const char* name = "w.weight_scale_inv") {
    folder.write("model.safetensors", SafetensorsBytes()
                                          .add("w.weight", "F8_E4M3", "[130,200]", Bytes().zeros(26000))
                                          .add(name, "F32", shape, floats(scales))
                                          .add("w.input_scale", "F32", "[1]", floats({0.1f}))
                                          .string());
  };
  weights({1, 2, 3, 4}, "[2,2]");
  auto model = open_model_files(folder.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->tensors.size(), 1u);  // the scales are part of the matrix, and that of inputs is not needed
  const BlockScales& scales = model->find("w.weight")->scales;
  EXPECT_EQ(scales.values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(scales.block_rows, 128);
  EXPECT_EQ(scales.block_cols, 128);

  weights({0.5f}, "[]", "w.weight_scale");
  model = open_model_files(folder.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->find("w.weight")->scales.values, std::vector<float>{0.5f});
  EXPECT_EQ(model->find("w.weight")->scales.block_rows, 130);
  EXPECT_EQ(model->find("w.weight")->scales.block_cols, 200);

  weights(std::vector<float>(130, 2.0f), "[130,1]", "w.weight_scale");
  model = open_model_files(folder.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->find("w.weight")->scales.block_rows, 1);

  weights({1, 2, 3}, "[3,1]");
  EXPECT_CONTAINS(error_of(folder.path()), "tensor 'w.weight_scale_inv' at offset");
  weights({1, 2, NAN, 4}, "[2,2]");
  EXPECT_CONTAINS(error_of(folder.path()), "not finite");
}

TEST(HuggingFace, UnpacksMlxAffineMatrices) {
  TemporaryFolder folder;
  auto config = [&](const char* quantization) {
    folder.write("config.json", std::string(R"({"model_type":"llama","quantization":)") + quantization + "}");
  };
  config(R"({"bits":4,"group_size":8,"mode":"affine"})");
  auto bf16 = [](const std::vector<float>& values) {
    Bytes bytes;
    for (float value : values) bytes.put(f32_to_bf16(value));
    return bytes;
  };
  auto weights = [&](const std::vector<float>& scales, const char* shape) {
    folder.write("model.safetensors", SafetensorsBytes()
                                          .add("m.weight", "U32", "[2,2]",
                                               Bytes().put(0x76543210u).put(0xfedcba98u).put(0u).put(0xffffffffu))
                                          .add("m.scales", "BF16", shape, bf16(scales))
                                          .add("m.biases", "BF16", shape, bf16({-1, 0, 5, 0.5f}))
                                          .add("norm.weight", "F32", "[1]", floats({3}))
                                          .string());
  };
  weights({1, 2, 0.5f, -1}, "[2,2]");
  auto model = open_model_files(folder.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->tensors.size(), 2u);
  const StoredTensor& matrix = *model->find("m.weight");
  EXPECT_EQ(matrix.tensor.dims, (std::array<int64_t, 4>{2, 16, 1, 1}));
  std::vector<float> expected;
  for (int q = 0; q < 8; ++q) expected.push_back(static_cast<float>(q) - 1);
  for (int q = 8; q < 16; ++q) expected.push_back(static_cast<float>(2 * q));
  for (int i = 0; i < 8; ++i) expected.push_back(5);
  for (int i = 0; i < 8; ++i) expected.push_back(-14.5f);
  EXPECT_EQ(decoded(matrix.tensor), expected);
  EXPECT_EQ(decoded(model->find("norm.weight")->tensor), std::vector<float>{3});

  weights({1, NAN, 0.5f, -1}, "[2,2]");
  EXPECT_CONTAINS(error_of(folder.path()), "tensor 'm.scales' at offset");
  weights({1, 2, 0.5f, -1}, "[4,1]");
  EXPECT_CONTAINS(error_of(folder.path()), "do not fit the 2 rows of 2 groups");
  config(R"({"bits":4,"group_size":7})");
  EXPECT_CONTAINS(error_of(folder.path()), "not whole groups of 7");
  config(R"({"bits":5,"group_size":8})");
  EXPECT_CONTAINS(error_of(folder.path(), ErrorKind::unsupported), "5 bits");
  config(R"({"bits":3,"group_size":7})");  // 64 bits are no whole levels
  EXPECT_CONTAINS(error_of(folder.path()), "not whole groups of 7");
  config(R"({"bits":4,"group_size":8,"mode":"mxfp4"})");
  EXPECT_CONTAINS(error_of(folder.path(), ErrorKind::unsupported), "mxfp4");
  config(R"({"bits":2,"group_size":0,"m":{"bits":4,"group_size":8}})");
  EXPECT_CONTAINS(error_of(folder.path()), "group_size");
  weights({1, 2, 0.5f, -1}, "[2,2]");
  config(R"({"bits":2,"group_size":64,"m":{"bits":4,"group_size":8}})");  // the module's own packing
  model = open_model_files(folder.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(decoded(model->find("m.weight")->tensor), expected);
}

// Groups of whole blocks with scales of F16 are Q4_1, value for value.
TEST(HuggingFace, KeepsMlxBlocksOfFourBits) {
  TemporaryFolder folder;
  for (const int bits : {2, 4, 8}) {
    folder.write("config.json",
                 R"({"model_type":"llama","quantization":{"group_size":32,"bits":)" + std::to_string(bits) + "}}");
    Bytes words;
    for (uint32_t i = 0; i < static_cast<uint32_t>(2 * 2 * bits); ++i) words.put(i * 2654435761u);
    for (const float scale : {0.25f, 0.1f}) {  // the second one is no F16 number
      const std::string shape = "[2," + std::to_string(2 * bits) + "]";
      folder.write("model.safetensors", SafetensorsBytes()
                                            .add("m.weight", "U32", shape.c_str(), words)
                                            .add("m.scales", "F32", "[2,2]", floats({scale, 1, 2, -0.5f}))
                                            .add("m.biases", "F32", "[2,2]", floats({-1, 0, 5, 0.5f}))
                                            .string());
      auto model = open_model_files(folder.path());
      ASSERT_TRUE(model.ok()) << model.error().message;
      const Tensor& tensor = model->find("m.weight")->tensor;
      EXPECT_EQ(tensor.format, find_format(bits <= 4 && scale == 0.25f ? "q4_1" : "f32")) << bits << " " << scale;
      const std::vector<float> values = decoded(tensor), scales = {scale, 1, 2, -0.5f}, biases = {-1, 0, 5, 0.5f};
      ASSERT_EQ(values.size(), 128u);
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t per_word = static_cast<size_t>(32 / bits);
        const uint32_t word = static_cast<uint32_t>(i / per_word) * 2654435761u;
        const uint32_t level = word >> (i % per_word * static_cast<size_t>(bits)) & ((1u << bits) - 1);
        EXPECT_EQ(values[i], scales[i / 32] * static_cast<float>(level) + biases[i / 32]) << i;
      }
    }
  }
}

// Levels of 2 and 3 bits in groups of 64 and 128 have formats of their own; levels of 3 bits cross words.
TEST(HuggingFace, KeepsMlxBlocksOfTwoAndThreeBits) {
  TemporaryFolder folder;
  for (const int bits : {2, 3}) {
    for (const int group : {32, 64, 128}) {
      const int cols = 2 * group, words_of_row = cols * bits / 32;
      folder.write("config.json", R"({"model_type":"llama","quantization":{"group_size":)" + std::to_string(group) +
                                      R"(,"bits":)" + std::to_string(bits) + "}}");
      std::vector<uint32_t> words;
      Bytes bytes;
      for (uint32_t i = 0; i < static_cast<uint32_t>(2 * words_of_row); ++i) {
        words.push_back((i + 1) * 2654435761u);
        bytes.put(words.back());
      }
      folder.write("model.safetensors",
                   SafetensorsBytes()
                       .add("m.weight", "U32", ("[2," + std::to_string(words_of_row) + "]").c_str(), bytes)
                       .add("m.scales", "F32", "[2,2]", floats({0.25f, 1, 2, -0.5f}))
                       .add("m.biases", "F32", "[2,2]", floats({-1, 0, 5, 0.5f}))
                       .string());
      auto model = open_model_files(folder.path());
      ASSERT_TRUE(model.ok()) << model.error().message;
      const Tensor& tensor = model->find("m.weight")->tensor;
      const std::string own = "q" + std::to_string(bits) + "_g" + std::to_string(group);
      EXPECT_EQ(tensor.format->name, group == 32 ? "q4_1" : own);
      const std::vector<float> values = decoded(tensor), scales = {0.25f, 1, 2, -0.5f}, biases = {-1, 0, 5, 0.5f};
      ASSERT_EQ(values.size(), static_cast<size_t>(2 * cols));
      for (size_t i = 0; i < values.size(); ++i) {
        uint32_t level = 0;  // bit by bit
        for (size_t b = 0; b < static_cast<size_t>(bits); ++b) {
          const size_t at = i * static_cast<size_t>(bits) + b;
          level |= (words[at / 32] >> (at % 32) & 1) << b;
        }
        const size_t of = i / static_cast<size_t>(group);
        ASSERT_EQ(values[i], scales[of] * static_cast<float>(level) + biases[of]) << bits << " " << group << " " << i;
      }
    }
  }
}

// Copies shared tokenizer files (unpacked) next to a tiny model; opens the folder.
Result<ModelFiles> open_with_tokenizer(const TemporaryFolder& folder, const char* config, const char* from,
                                       const std::vector<std::pair<const char*, const char*>>& files) {
  folder.write("config.json", config);
  folder.write("model.safetensors", small_weights());
  for (const auto& [source, name] : files) {
    folder.write(name, testing::read_maybe_xz(testing::shared_data() / "tokenizers" / from / source));
  }
  return open_model_files(folder.path());
}

std::vector<TokenId> encoded(const ModelFiles& model, std::string_view text) {
  auto tokenizer = Tokenizer::create(*model.tokenizer);
  if (!tokenizer.ok()) return {};
  return (*tokenizer)->encode(text, {.add_special = false});
}

TEST(HuggingFaceTokenizers, VocabAndMerges) {
  MILLRACE_NEEDS_SHARED("tokenizers/qwen2");
  TemporaryFolder folder;
  auto model = open_with_tokenizer(folder, R"({"model_type":"qwen2","eos_token_id":151643})", "qwen2",
                                   {{"vocab.json.xz", "vocab.json"},
                                    {"merges.txt.xz", "merges.txt"},
                                    {"added_tokens.json", "added_tokens.json"},
                                    {"special_tokens_map.json", "special_tokens_map.json"},
                                    {"tokenizer_config.json", "tokenizer_config.json"}});
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_TRUE(model->tokenizer.has_value());
  EXPECT_EQ(encoded(*model, "Hello world"), (std::vector<TokenId>{9707, 1879}));
  EXPECT_EQ(encoded(*model, "123"), (std::vector<TokenId>{16, 17, 18}));  // Qwen splits digits one by one
  auto ends = [&](TokenId id) {
    return std::count(model->tokenizer->eog.begin(), model->tokenizer->eog.end(), id) == 1;
  };
  EXPECT_TRUE(ends(151643));  // <|endoftext|>
  EXPECT_TRUE(ends(151645));  // <|im_end|>
}

TEST(HuggingFaceTokenizers, TokenizerJson) {
  MILLRACE_NEEDS_SHARED("tokenizers/phi3/tokenizer.json.xz");
  TemporaryFolder folder;
  auto model = open_with_tokenizer(
      folder, R"({"model_type":"phi3"})", "phi3",
      {{"tokenizer.json.xz", "tokenizer.json"}, {"tokenizer_config.json", "tokenizer_config.json"}});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(encoded(*model, "Hello world"), (std::vector<TokenId>{15043, 3186}));
  EXPECT_FALSE(model->chat_template.empty());
}

TEST(HuggingFaceTokenizers, TokenizerModelOfBothKinds) {
  MILLRACE_NEEDS_SHARED("tokenizers/sentencepiece/llama2_tokenizer.model");
  TemporaryFolder sentencepiece;
  auto model = open_with_tokenizer(sentencepiece, R"({"model_type":"llama"})", "sentencepiece",
                                   {{"llama2_tokenizer.model", "tokenizer.model"}});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(encoded(*model, "Hello world"), (std::vector<TokenId>{15043, 3186}));
  TemporaryFolder tiktoken;
  model =
      open_with_tokenizer(tiktoken, R"({"model_type":"llama"})", "llama3", {{"tokenizer.model.xz", "tokenizer.model"}});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(encoded(*model, "Hello world"), (std::vector<TokenId>{9906, 1917}));
}

TEST(HuggingFaceTokenizers, ErrorsNameTheFile) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"model_type":"llama"})");
  folder.write("model.safetensors", small_weights());
  folder.write("tokenizer.json", "{}");
  EXPECT_CONTAINS(open_model_files(folder.path()).error().message, folder.path("tokenizer.json") + ": ");
}

TEST(HuggingFace, LoadsTheSharedFolders) {
  MILLRACE_NEEDS_SHARED("weights/tiny-random-hf");
  size_t opened = 0;
  for (const auto& entry : std::filesystem::directory_iterator(testing::shared_data() / "weights/tiny-random-hf")) {
    auto model = open_model_files(entry.path());
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_TRUE(check_finite(*model).ok());
    for (const StoredTensor& stored : model->tensors) {
      EXPECT_NE(stored.tensor.format, nullptr) << stored.name;
      EXPECT_EQ(stored.tensor.bytes, stored.tensor.rows() * stored.tensor.format->row_bytes(stored.tensor.cols()));
    }
    ++opened;
  }
  EXPECT_GE(opened, 8u);
}

}  // namespace
}  // namespace millrace
