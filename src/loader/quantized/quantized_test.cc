// Damaged quantized checkpoints are refused with the tensor and the reason. Whole ones: tests/golden/quantized_test.cc.
#include "loader/quantized/quantized.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <tuple>

#include "contains.h"
#include "formats/code_tables.h"
#include "formats/format.h"
#include "loader/quantized/test_values.h"
#include "tensor/codebook.h"

namespace millrace {
namespace {

using testing::Bytes;
using testing::ones;
using testing::SafetensorsBytes;
using testing::TemporaryFolder;
using testing::values_of;

constexpr const char* kGptq = R"({"quant_method":"gptq","bits":4,"group_size":32})";
constexpr const char* kPacked =
    R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"a":{"weights":{"num_bits":4}}}})";
constexpr const char* kInt = R"({"quant_method":"compressed-tensors","format":"int-quantized"})";

Bytes words(size_t count) { return Bytes().zeros(4 * count); }
Bytes indices(const std::vector<int32_t>& values) {
  Bytes bytes;
  for (int32_t value : values) bytes.put(value);
  return bytes;
}

class Damaged : public ::testing::Test {
 protected:
  Result<ModelFiles> open(const char* quantization, const SafetensorsBytes& tensors) {
    folder_.write("config.json", std::string(R"({"model_type":"llama","quantization_config":)") + quantization + "}");
    folder_.write("model.safetensors", tensors.string());
    return open_model_files(folder_.path());
  }
  std::string error(const char* quantization, const SafetensorsBytes& tensors, ErrorKind kind = ErrorKind::corrupt) {
    auto model = open(quantization, tensors);
    if (model.ok()) return "(accepted)";
    EXPECT_EQ(model.error().kind, kind) << model.error().message;
    return model.error().message;
  }

  TemporaryFolder folder_;
};

// 8 rows of 64 columns in two groups.
SafetensorsBytes gptq(Bytes g_idx = {}, const char* scales = "[2,8]", size_t scale_count = 16) {
  SafetensorsBytes out;
  out.add("a.qweight", "I32", "[8,8]", words(64)).add("a.qzeros", "I32", "[2,1]", words(2));
  out.add("a.scales", "F32", scales, ones(scale_count));
  if (!g_idx.string().empty()) out.add("a.g_idx", "I32", "[64]", g_idx);
  return out;
}

TEST_F(Damaged, GptqIsRefused) {
  auto whole = open(kGptq, gptq());
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  const StoredTensor* matrix = whole->find("a.weight");
  ASSERT_TRUE(matrix);
  EXPECT_EQ(whole->tensors.size(), 1u);
  EXPECT_EQ(matrix->tensor.rows(), 8);
  EXPECT_EQ(matrix->tensor.cols(), 64);
  std::vector<int32_t> group_of(64, 1);
  EXPECT_CONTAINS(error(kGptq, gptq(indices(group_of))), "its 2 groups have not 32 columns each");
  group_of[5] = 2;
  EXPECT_CONTAINS(error(kGptq, gptq(indices(group_of))), "holds 2 at index 5; must be from 0 to 1");
  group_of[5] = -1;
  EXPECT_CONTAINS(error(kGptq, gptq(indices(group_of))), "holds -1 at index 5");
  EXPECT_CONTAINS(error(kGptq, gptq({}, "[3,8]", 24)), "has 24 values, must have 2 x 8");
  EXPECT_CONTAINS(error(R"({"quant_method":"gptq","bits":5})", gptq(), ErrorKind::unsupported), "must be 2, 3, 4 or 8");
  EXPECT_CONTAINS(error(kGptq, SafetensorsBytes().add("a.qweight", "I32", "[8,8]", words(64))),
                  "'a.qzeros' is missing");
  EXPECT_CONTAINS(error(kGptq, SafetensorsBytes().add("a.qweight", "F32", "[8,8]", words(64))), "must be I32");
  EXPECT_CONTAINS(error(R"({"quant_method":"gptq","bits":3})", gptq()), "not whole rows and columns of 3 bits");
  SafetensorsBytes odd;  // three groups
  odd.add("a.qweight", "I32", "[8,8]", words(64)).add("a.qzeros", "I32", "[3,1]", words(3));
  EXPECT_CONTAINS(error(kGptq, odd.add("a.scales", "F32", "[3,8]", ones(24))), "3 groups do not divide 64 columns");
}

// 352 columns in groups of 128: the last group has 96, in order or by g_idx.
TEST_F(Damaged, GptqMayHaveAShortLastGroup) {
  constexpr const char* kGroups = R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":true})";
  constexpr int kCols = 352;
  for (const bool permuted : {false, true}) {
    std::vector<int32_t> group_of;
    for (int i = 0; i < kCols; ++i) group_of.push_back((permuted ? kCols - 1 - i : i) / 128);
    Bytes levels, scales;
    for (int i = 0; i < kCols / 8 * 8; ++i) levels.put(uint32_t{0x99999999});
    for (int group = 0; group < 3; ++group)
      for (int row = 0; row < 8; ++row) scales.put(static_cast<float>(1 << group));
    SafetensorsBytes tensors;
    tensors.add("a.qweight", "I32", "[44,8]", levels).add("a.qzeros", "I32", "[3,1]", words(3));
    tensors.add("a.scales", "F32", "[3,8]", scales).add("a.g_idx", "I32", "[352]", indices(group_of));
    auto model = open(kGroups, tensors);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const StoredTensor* matrix = model->find("a.weight");
    ASSERT_TRUE(matrix);
    const std::vector<float> values = values_of(*matrix);
    ASSERT_EQ(values.size(), 8u * kCols);
    for (const int column : {0, 127, 128, 255, 256, 351})  // in stored order, which is that of the groups
      EXPECT_EQ(values[static_cast<size_t>(column)], 8.0f * static_cast<float>(1 << column / 128)) << column;
  }
}

// A stored zero point of 15 in the first layout is 16 in AutoGPTQ's PyTorch and Triton kernels and in ExLlama's.
TEST_F(Damaged, GptqZeroPointsDoNotWrap) {
  SafetensorsBytes tensors;
  tensors.add("a.qweight", "I32", "[8,8]", words(64)).add("a.qzeros", "I32", "[2,1]", Bytes().put(~0u).put(~0u));
  auto model = open(kGptq, tensors.add("a.scales", "F32", "[2,8]", ones(16)));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(values_of(*model->find("a.weight"))[0], -16.0f);
}

// Folders of AutoGPTQ's and AutoAWQ's first versions describe the quantization in a file of its own.
TEST_F(Damaged, TheQuantizationMayHaveAFileOfItsOwn) {
  folder_.write("config.json", R"({"model_type":"llama"})");
  folder_.write("quantize_config.json", R"({"bits":4,"group_size":32,"desc_act":false,"sym":true})");
  folder_.write("model.safetensors", gptq().string());
  auto model = open_model_files(folder_.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(model->find("a.weight"));
  folder_.write("quantize_config.json", R"({"bits":4,"group_size":32,"quant_method":"quark"})");
  EXPECT_FALSE(open_model_files(folder_.path()).ok());
}

// GPTQ matrices of 2 and 3 bits, 32 rows of 256 columns. Zero points of the middle are those of symmetric levels; their
// minimum is a power of two times the scale.
TEST_F(Damaged, GptqOfTwoAndThreeBitsHasFormatsOfItsOwn) {
  struct Case {
    int bits, group, zero;
    float scale;
    const char* format;
  };
  constexpr float kElevenBits = 2047.0f / 65536;
  constexpr int kRows = 32, kCols = 256;
  for (const Case& of : {Case{2, 64, 2, kElevenBits, "q2_g64"}, Case{2, 128, 2, kElevenBits, "q2_g128"},
                         Case{2, 32, 2, kElevenBits, "q4_0"}, Case{3, 64, 4, kElevenBits, "q3_g64"},
                         Case{3, 256, 4, kElevenBits, "q3_g128"}, Case{3, 64, 7, 0.125f, "q3_g64"},
                         Case{3, 64, 7, kElevenBits, "q4_0"}}) {  // the last one's minimum has 14 bits
    const int words_of_column = kCols * of.bits / 32, groups = kCols / of.group;
    Bytes levels, zeros, scales;
    std::vector<uint32_t> words, points(static_cast<size_t>(of.bits));
    for (int i = 0; i < words_of_column * kRows; ++i) {
      words.push_back(static_cast<uint32_t>(i + 1) * 2654435761u);
      levels.put(words.back());
    }
    for (int row = 0; row < kRows; ++row)
      for (int b = 0; b < of.bits; ++b) {
        const int at = row * of.bits + b;
        points[static_cast<size_t>(at / 32)] |= static_cast<uint32_t>((of.zero - 1) >> b & 1) << (at % 32);
      }
    for (int group = 0; group < groups; ++group) {
      for (uint32_t word : points) zeros.put(word);
      for (int row = 0; row < kRows; ++row) scales.put(of.scale);
    }
    const std::string config = fmt::format(R"({{"quant_method":"gptq","bits":{},"group_size":{}}})", of.bits, of.group);
    SafetensorsBytes tensors;
    tensors.add("a.qweight", "I32", fmt::format("[{},{}]", words_of_column, kRows).c_str(), levels);
    tensors.add("a.qzeros", "I32", fmt::format("[{},{}]", groups, of.bits).c_str(), zeros);
    tensors.add("a.scales", "F32", fmt::format("[{},{}]", groups, kRows).c_str(), scales);
    auto model = open(config.c_str(), tensors);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const StoredTensor& matrix = *model->find("a.weight");
    EXPECT_EQ(matrix.tensor.format->name, of.format);
    const std::vector<float> values = values_of(matrix);
    ASSERT_EQ(values.size(), size_t{kRows * kCols});
    for (int row = 0; row < kRows; ++row) {
      for (int col = 0; col < kCols; ++col) {
        int level = 0;  // bit by bit
        for (int b = 0; b < of.bits; ++b) {
          const int at = col * of.bits + b;
          level |= static_cast<int>(words[static_cast<size_t>(at / 32 * kRows + row)] >> (at % 32) & 1) << b;
        }
        ASSERT_EQ(values[static_cast<size_t>(row * kCols + col)], of.scale * static_cast<float>(level - of.zero))
            << of.format << " row " << row << " column " << col;
      }
    }
  }
}

TEST_F(Damaged, OthersAreRefused) {
  const auto packed = [](const std::vector<int32_t>& shape, const char* scales, size_t count) {
    SafetensorsBytes out;
    out.add("a.weight_packed", "I32", "[4,8]", words(32)).add("a.weight_shape", "I32", "[2]", indices(shape));
    return out.add("a.weight_scale", "F32", scales, ones(count));
  };
  EXPECT_TRUE(open(kPacked, packed({4, 64}, "[4,2]", 8)).ok());
  EXPECT_CONTAINS(error(kPacked, packed({5, 64}, "[4,2]", 8)), "weight_shape 5 x 64 does not fit");
  EXPECT_CONTAINS(error(kPacked, packed({4, 100}, "[4,2]", 8)), "fit 100 columns with no num_bits");
  EXPECT_CONTAINS(error(kPacked, packed({4, 64}, "[4,3]", 12)), "12 scales do not fit a 4 x 64 matrix");
  SafetensorsBytes scb;
  scb.add("a.weight", "I8", "[4,32]", Bytes().zeros(128)).add("a.SCB", "F32", "[3]", ones(3));
  EXPECT_CONTAINS(error(R"({"quant_method":"bitsandbytes"})", scb), "has 3 values, must have 4 x 1");
  EXPECT_CONTAINS(error(R"({"quant_method":"awq","version":"gemv"})", gptq(), ErrorKind::unsupported), "gemm");
  EXPECT_CONTAINS(
      error(R"({"quant_method":"compressed-tensors","format":"marlin-24"})", gptq(), ErrorKind::unsupported),
      "'marlin-24'");
}

constexpr const char* kBitsandbytes = R"({"quant_method":"bitsandbytes","load_in_4bit":true})";

Bytes text(const std::string& value) {
  Bytes bytes;
  for (char c : value) bytes.put(c);
  return bytes;
}

// 4 rows of 32 columns in two blocks; with `map` 16 values, all the same if 1.
SafetensorsBytes nf4(const std::string& state, size_t blocks = 2, const Bytes& map = ones(16)) {
  SafetensorsBytes out;
  out.add("a.weight", "U8", "[64,1]", Bytes().zeros(64));
  out.add("a.weight.absmax", "F32", ("[" + std::to_string(blocks) + "]").c_str(), ones(blocks));
  out.add("a.weight.quant_map", "F32", "[16]", map);
  return out.add("a.weight.quant_state.bitsandbytes__nf4", "U8", ("[" + std::to_string(state.size()) + "]").c_str(),
                 text(state));
}

TEST_F(Damaged, Bitsandbytes4BitIsRefused) {
  const std::string whole = R"({"quant_type":"nf4","blocksize":64,"shape":[4,32]})";
  auto model = open(kBitsandbytes, nf4(whole));
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->tensors.size(), 1u);
  EXPECT_EQ(model->find("a.weight")->tensor.format, find_format("f32"));  // that is not the published map
  EXPECT_CONTAINS(error(kBitsandbytes, nf4("not JSON")), "bitsandbytes__nf4");
  for (const char* shape : {"[4]", "[4,-32]", "[0,32]", "[4,1e3]", "[4,99999999999999999999]", "\"4,32\"", "null"})
    EXPECT_CONTAINS(error(kBitsandbytes, nf4(R"({"blocksize":64,"shape":)" + std::string(shape) + "}")), "'shape'");
  EXPECT_CONTAINS(error(kBitsandbytes, nf4(R"({"blocksize":0,"shape":[4,32]})")), "'blocksize'");
  EXPECT_CONTAINS(error(kBitsandbytes, nf4(R"({"blocksize":64,"shape":[4,33]})")), "do not fit 4 x 33");
  EXPECT_CONTAINS(error(kBitsandbytes, nf4(R"({"blocksize":64,"shape":[2147483648,2147483648]})")), "do not fit");
  EXPECT_CONTAINS(error(kBitsandbytes, nf4(whole, 3)), "has 3 values, must have 2 x 1");
  const std::string nested = R"({"blocksize":64,"shape":[4,32],"nested_blocksize":256,"nested_offset":)";
  EXPECT_CONTAINS(error(kBitsandbytes, nf4(nested + "null}")), "'nested_offset'");
  EXPECT_CONTAINS(error(kBitsandbytes, nf4(nested + "0.5}")), "must be U8 with 2");
  SafetensorsBytes stateless;
  stateless.add("a.weight", "U8", "[64,1]", Bytes().zeros(64)).add("a.weight.absmax", "F32", "[2]", ones(2));
  EXPECT_CONTAINS(error(kBitsandbytes, stateless, ErrorKind::unsupported), "without a quant_state");
  Bytes infinite = ones(15);
  infinite.put(std::numeric_limits<float>::infinity());
  EXPECT_CONTAINS(error(kBitsandbytes, nf4(whole, 2, infinite)), "not finite");
}

constexpr const char* kNvfp4 = R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"})";
constexpr const char* kMxfp4 = R"({"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized"})";
constexpr const char* kModelOpt = R"({"quant_method":"modelopt","quant_algo":"NVFP4"})";

// 2 rows of `cols` columns: code i is i % 16, scale i is `scale`; `whole` 0: no scale of the matrix.
SafetensorsBytes float4(int cols, int run, uint8_t scale, float whole, const char* prefix = "a.weight_packed",
                        const char* global = "a.weight_global_scale") {
  Bytes codes, scales;
  for (int i = 0; i < cols; ++i) codes.put(static_cast<uint8_t>(2 * i % 16 | (2 * i + 1) % 16 << 4));
  for (int i = 0; i < 2 * cols / run; ++i) scales.put(scale);
  SafetensorsBytes out;
  out.add(prefix, "U8", fmt::format("[2,{}]", cols / 2), codes);
  out.add("a.weight_scale", run == 16 ? "F8_E4M3" : "U8", fmt::format("[2,{}]", cols / run), scales);
  if (whole != 0) out.add(global, "F32", "[1]", Bytes().put(whole));
  return out;
}

constexpr float kE2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

TEST_F(Damaged, Float4KeepsEveryValue) {
  struct Wanted {
    const char* config;
    SafetensorsBytes file;
    const char* format;
    float scale;
  };
  const Wanted kWanted[] = {
      {kNvfp4, float4(64, 16, 0x44, 8), "nvfp4", 3.0f / 8},
      {kNvfp4, float4(64, 16, 0xc4, 8), "nvfp4", -3.0f / 8},  // whose sign goes to the codes
      {kNvfp4, float4(48, 16, 0x44, 8), "f32", 3.0f / 8},     // no whole blocks of 64
      {kModelOpt, float4(64, 16, 0x44, 8, "a.weight", "a.weight_scale_2"), "nvfp4", 3.0f * 8},
      {kMxfp4, float4(64, 32, 129, 0), "mxfp4", 4.0f},
      {R"({"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{"g":{"format":
       "mxfp4-pack-quantized"}}})",
       float4(32, 32, 120, 0), "mxfp4", 1.0f / 128},
  };
  for (const Wanted& wanted : kWanted) {
    auto model = open(wanted.config, wanted.file);
    ASSERT_TRUE(model.ok()) << model.error().message;
    ASSERT_EQ(model->tensors.size(), 1u);
    const StoredTensor& matrix = *model->find("a.weight");
    EXPECT_EQ(matrix.tensor.format, find_format(wanted.format));
    EXPECT_EQ(matrix.tensor.rows(), 2);
    const std::vector<float> values = values_of(matrix);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], kE2m1[i % 16] * wanted.scale) << i;
  }
}

TEST_F(Damaged, Float4IsRefused) {
  EXPECT_CONTAINS(error(kNvfp4, float4(64, 16, 0x7f, 8)), "scale 0 is NaN");
  EXPECT_CONTAINS(error(kMxfp4, float4(64, 32, 255, 0)), "scale 0 is NaN");
  EXPECT_CONTAINS(error(kNvfp4, float4(64, 16, 0x44, 0)), "weight_scale_2' is missing");
  EXPECT_CONTAINS(error(kNvfp4, float4(64, 16, 0x44, -1)), "must be above 0");
  EXPECT_CONTAINS(error(kNvfp4, float4(64, 16, 0x44, 1e-40f)), "must be above 0");  // its inverse is infinite
  EXPECT_CONTAINS(error(kNvfp4, float4(64, 16, 0x44, std::numeric_limits<float>::quiet_NaN())), "not finite");
  EXPECT_CONTAINS(error(kNvfp4, float4(24, 8, 1, 8)), "24 columns");
  SafetensorsBytes narrow = float4(64, 16, 0x44, 8);
  EXPECT_CONTAINS(error(kNvfp4, SafetensorsBytes()
                                    .add("a.weight_packed", "U8", "[2,32]", Bytes().zeros(64))
                                    .add("a.weight_scale", "F8_E4M3", "[2,3]", Bytes().zeros(6))),
                  "must be F8_E4M3, 2 x 4");
  EXPECT_CONTAINS(
      error(kModelOpt,
            float4(64, 16, 1, 8, "a.weight", "a.weight_scale_2").add("a.pre_quant_scale", "F32", "[64]", ones(64)),
            ErrorKind::unsupported),
      "a.pre_quant_scale");
  EXPECT_CONTAINS(error(R"({"quant_method":"modelopt","quant_algo":"W4A8_AWQ"})", narrow, ErrorKind::unsupported),
                  "'W4A8_AWQ'");
  EXPECT_CONTAINS(
      error(R"({"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{"g":{"format":
                          "marlin-24"}}})",
            narrow, ErrorKind::unsupported),
      "'marlin-24'");
}

// Model Optimizer's own file stands for a quantization_config.
TEST_F(Damaged, ModelOptimizersConfigIsReadFromItsFile) {
  folder_.write("config.json", R"({"model_type":"llama"})");
  folder_.write("hf_quant_config.json", R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4"}})");
  folder_.write("model.safetensors", float4(64, 16, 0x44, 8, "a.weight", "a.weight_scale_2").string());
  auto model = open_model_files(folder_.path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->find("a.weight")->tensor.format, find_format("nvfp4"));
  folder_.write("hf_quant_config.json", R"({"quantization":5})");
  EXPECT_CONTAINS(open_model_files(folder_.path()).error().message, "'quantization' must be an object");
}

// 3 rows of 32 columns; codes of `bits` bits count from 7 up.
SafetensorsBytes aqlm(int books, int bits, const char* type, const char* codebooks = nullptr) {
  Bytes codes, entries, factors;
  for (int i = 0; i < 3 * 4 * books; ++i) {
    if (type == std::string_view("I16"))
      codes.put(static_cast<int16_t>(7 + 5 * i));
    else
      codes.put(static_cast<int8_t>(7 + 5 * i));
  }
  for (int i = 0; i < books * (1 << bits) * 8; ++i) entries.put(static_cast<float>(i % 1999));
  for (float scale : {0.5f, 2.0f, -1.0f}) factors.put(scale);
  SafetensorsBytes out;
  out.add("a.codes", type, fmt::format("[3,4,{}]", books), codes);
  out.add("a.codebooks", "F32", codebooks ? codebooks : fmt::format("[{},{},1,8]", books, 1 << bits), entries);
  return out.add("a.scales", "F32", "[3,1,1,1]", factors);
}

std::string aqlm_config(int bits) { return fmt::format(R"({{"quant_method":"aqlm","nbits_per_codebook":{}}})", bits); }

// Codes of whole bytes stay, others are packed; the highest bit is no sign.
TEST_F(Damaged, AqlmBecomesACodebook) {
  for (const auto& [books, bits, type] : {std::tuple(2, 8, "I8"), {1, 16, "I16"}, {3, 7, "I8"}, {2, 11, "I16"}}) {
    auto model = open(aqlm_config(bits).c_str(), aqlm(books, bits, type));
    ASSERT_TRUE(model.ok()) << model.error().message;
    ASSERT_EQ(model->tensors.size(), 3u);
    const StoredTensor &matrix = *model->find("a.weight"), &tables = *model->find("a.codebook");
    EXPECT_EQ(matrix.type_name, "I8");
    ASSERT_EQ(tables.tensor.values(), int64_t{books} * (1 << bits) * 8);
    Codebook book{.bits = bits, .dim = 8, .books = books};
    ASSERT_EQ(matrix.tensor.cols(), book.row_bytes(32));
    for (int i = 0; i < 3 * 4 * books; ++i) {
      const int64_t row = i / (4 * books);
      const int code = type == std::string_view("I8") ? (7 + 5 * i) & 255 : 7 + 5 * i;
      EXPECT_EQ(codebook_index(book, matrix.tensor.data + row * book.row_bytes(32), i % (4 * books)),
                static_cast<uint32_t>(code & ((1 << bits) - 1)))
          << bits << " bits, code " << i;
    }
    EXPECT_EQ(values_of(*model->find("a.codebook_scales")), (std::vector<float>{0.5f, 2.0f, -1.0f}));
    EXPECT_EQ(values_of(tables)[1998], 1998.0f);
  }
}

TEST_F(Damaged, AqlmIsRefused) {
  const auto refused = [&](int bits, const SafetensorsBytes& file, ErrorKind kind = ErrorKind::corrupt) {
    return error(aqlm_config(bits).c_str(), file, kind);
  };
  EXPECT_CONTAINS(refused(17, aqlm(1, 8, "I8"), ErrorKind::unsupported), "must be from 1 to 16");
  EXPECT_CONTAINS(refused(9, aqlm(2, 8, "I8")), "2^9 entries");
  EXPECT_CONTAINS(refused(9, aqlm(2, 9, "I8")), "must be I16");
  EXPECT_CONTAINS(refused(8, aqlm(2, 8, "I8", "[2,256,2,4]"), ErrorKind::unsupported), "vectors of 2 rows");
  EXPECT_CONTAINS(refused(4, aqlm(2, 4, "I8", "[1,16,1,16]")), "must be I8 [rows, vectors of a row, 1 books]");
  EXPECT_CONTAINS(refused(2, aqlm(2, 2, "I8", "[16,4,1,1]"), ErrorKind::unsupported), "16 books of 1 values");
  EXPECT_CONTAINS(refused(8, SafetensorsBytes().add("a.codes", "I8", "[3,4,2]", Bytes().zeros(24))),
                  "a.codebooks is missing");
}

// 4 rows of 32 columns in groups of 64.
SafetensorsBytes hqq(const std::vector<int32_t>& shape, int32_t bits, int32_t group, int32_t axis, size_t scales = 2) {
  SafetensorsBytes out;
  out.add("a.W_q", "U8", "[1,64]", Bytes().zeros(64)).add("a.shape", "I32", "[2]", indices(shape));
  out.add("a.nbits", "I32", "[]", indices({bits})).add("a.group_size", "I32", "[]", indices({group}));
  const std::string lines = "[" + std::to_string(scales) + ",1]";
  out.add("a.scale", "F32", lines.c_str(), ones(scales)).add("a.zero", "F32", lines.c_str(), ones(scales));
  return out.add("a.axis", "I32", "[]", indices({axis}));
}

TEST_F(Damaged, HqqIsRefused) {
  constexpr const char* kHqq = R"({"quant_method":"hqq"})";
  auto model = open(kHqq, hqq({4, 32}, 4, 64, 1));
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->tensors.size(), 1u);
  EXPECT_EQ(model->find("a.weight")->tensor.rows(), 4);
  EXPECT_CONTAINS(error(kHqq, hqq({4, 33}, 4, 64, 1)), "do not divide 4 x 33");
  EXPECT_CONTAINS(error(kHqq, hqq({8, 32}, 4, 64, 1)), "64 bytes do not fit 8 x 32 values of 4 bits");
  EXPECT_CONTAINS(error(kHqq, hqq({0, 32}, 4, 64, 1)), "do not divide 0 x 32");
  EXPECT_CONTAINS(error(kHqq, hqq({-4, 32}, 4, 64, 1)), "holds -4 at index 0");
  EXPECT_CONTAINS(error(kHqq, hqq({4, 32}, 3, 64, 1)), "3 bits in groups of 64");
  EXPECT_CONTAINS(error(kHqq, hqq({4, 32}, 4, 0, 1)), "is 0; must be 1 at least");
  EXPECT_CONTAINS(error(kHqq, hqq({4, 32}, 7, 64, 1), ErrorKind::unsupported), "7 bits");
  EXPECT_CONTAINS(error(kHqq, hqq({4, 32}, 4, 64, 2), ErrorKind::unsupported), "axis 2");
  EXPECT_CONTAINS(error(kHqq, hqq({4, 32}, 4, 64, 1, 3)), "has 3 values, must have 2 x 1");
  EXPECT_CONTAINS(error(kHqq, hqq({1 << 30, 1 << 30}, 4, 1 << 30, 0)), "do not fit");
}

// Each value is the one of the checkpoint but for the rounding of its code, which is far below the distance of two
// codes.
TEST_F(Damaged, Bitsandbytes4BitKeepsEveryCode) {
  Bytes codes, absmax, map;
  for (int i = 0; i < 64; ++i) codes.put(static_cast<uint8_t>(i * 37));
  for (float scale : {0.25f, 3.0f}) absmax.put(scale);
  for (float value : kNf4Values) map.put(value);
  const std::string state = R"({"blocksize":64,"shape":[4,32]})";
  SafetensorsBytes file;
  file.add("a.weight", "U8", "[64,1]", codes).add("a.weight.absmax", "F32", "[2]", absmax);
  file.add("a.weight.quant_map", "F32", "[16]", map);
  file.add("a.weight.quant_state.bitsandbytes__nf4", "U8", "[" + std::to_string(state.size()) + "]", text(state));
  auto model = open(kBitsandbytes, file);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Tensor& tensor = model->find("a.weight")->tensor;
  EXPECT_EQ(tensor.format, find_format("nf4"));
  std::vector<float> values(128);
  tensor.format->decode(tensor.data, values.data(), 128);
  for (int i = 0; i < 128; ++i) {
    const int byte = i / 2 * 37 & 255, code = i % 2 == 0 ? byte >> 4 : byte & 15;
    const float scale = i < 64 ? 0.25f : 3.0f;
    EXPECT_NEAR(values[static_cast<size_t>(i)], kNf4Values[code] * scale, 0.004 * scale) << i;
  }
}

// Whatever sizes such a file claims, it is read within its bounds or refused. (Sanitizers see the reads.)
TEST_F(Damaged, RandomSizesNeverReachBeyondTheFile) {
  std::mt19937 engine(29);
  const auto pick = [&](std::initializer_list<int64_t> values) { return values.begin()[engine() % values.size()]; };
  int accepted = 0;
  for (int i = 0; i < 400; ++i) {
    const int64_t rows = pick({0, 1, 2, 4, 5, 4, 4, 1 << 30}), cols = pick({0, 1, 16, 31, 32, 32, 32, 33, 64, 1 << 30});
    const int64_t block = pick({0, 1, 7, 31, 32, 64, 64, 64, 128, 1 << 30});
    Result<ModelFiles> model = Error::internal("none");
    if (i % 2 == 0) {
      const std::string state = fmt::format(R"({{"blocksize":{},"shape":[{},{}]{}}})", block, rows, cols,
                                            i % 8 == 0 ? R"(,"nested_blocksize":256,"nested_offset":1)" : "");
      model = open(kBitsandbytes, nf4(state, static_cast<size_t>(pick({1, 2, 2, 2, 4})), ones(16)));
    } else {
      model = open(
          R"({"quant_method":"hqq"})",
          hqq({static_cast<int32_t>(rows), static_cast<int32_t>(cols)}, static_cast<int32_t>(pick({1, 2, 4, 4, 8})),
              static_cast<int32_t>(block), static_cast<int32_t>(i % 4 / 2), static_cast<size_t>(pick({1, 2, 2, 4}))));
    }
    accepted += model.ok();
    if (model.ok()) {
      EXPECT_EQ(model->find("a.weight")->tensor.rows(), rows);
    }
  }
  EXPECT_GT(accepted, 3);
  EXPECT_LT(accepted, 200);
}

// What no format of blocks holds becomes F32: short groups, and scales below the normal numbers of F16.
TEST_F(Damaged, OddGroupsAndScalesBecomeF32) {
  const auto format_of = [&](const char* scales, float scale, size_t count) {
    Bytes values;
    for (size_t i = 0; i < count; ++i) values.put(scale);
    Bytes levels;
    for (int i = 0; i < 4 * 48; ++i) levels.put(static_cast<int8_t>(i % 100));
    SafetensorsBytes file;
    file.add("a.weight", "I8", "[4,48]", levels).add("a.weight_scale", "F32", scales, values);
    auto model = open(kInt, file);
    EXPECT_TRUE(model.ok()) << model.error().message;
    const Tensor& tensor = model->find("a.weight")->tensor;
    std::vector<float> decoded(4 * 48);
    tensor.format->decode(tensor.data, decoded.data(), 4 * 48);
    for (int i = 0; i < 4 * 48; ++i)
      EXPECT_FLOAT_EQ(decoded[static_cast<size_t>(i)], static_cast<float>(i % 100) * scale);
    return std::string(tensor.format->name);
  };
  EXPECT_EQ(format_of("[4,1]", 0.5f, 4), "f32");  // 48 columns are no whole blocks
  EXPECT_EQ(format_of("[4,3]", 0.5f, 12), "f32");
  EXPECT_EQ(format_of("[1]", 3e-6f, 1), "f32");
}

}  // namespace
}  // namespace millrace
