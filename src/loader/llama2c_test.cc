#include "loader/llama2c.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "contains.h"
#include "loader/test_bytes.h"
#include "shared_data.h"

namespace millrace {
namespace {

using testing::Bytes;
using testing::TemporaryFolder;

constexpr int32_t kDim = 4, kFfn = 6, kLayers = 2, kHeads = 2, kKvHeads = 1, kVocab = 5, kContext = 8;
// Values of the tensors in the order of version 0.
constexpr int kValues =
    kVocab * kDim + kLayers * (kDim + kDim * kDim + 2 * 2 * kDim + kDim * kDim + kDim + 3 * kFfn * kDim) + kDim;
constexpr int kRope = kContext * kDim / kHeads;  // both tables

Bytes sizes(int32_t vocab = kVocab) {
  return Bytes().put(kDim).put(kFfn).put(kLayers).put(kHeads).put(kKvHeads).put(vocab).put(kContext);
}
Bytes version0(bool shared = true) {
  Bytes file = sizes(shared ? kVocab : -kVocab);
  for (int i = 0; i < kValues; ++i) file.put(static_cast<float>(i));
  file.zeros(kRope * sizeof(float));
  for (int i = 0; !shared && i < kVocab * kDim; ++i) file.put(-static_cast<float>(i));
  return file;
}
Bytes version2(int32_t group = 2) {
  Bytes file = Bytes().put(uint32_t{0x616b3432}).put(int32_t{2}).append(sizes()).put(uint8_t{1}).put(group).pad(256);
  for (int i = 0; i < (2 * kLayers + 1) * kDim; ++i) file.put(1.0f);
  for (int count : {kVocab * kDim, 16, 16, 8, 8, 8, 8, 16, 16, 24, 24, 24, 24, 24, 24}) {
    for (int i = 0; i < count; ++i) file.put(static_cast<int8_t>(i - 9));
    for (int i = 0; i < count / group; ++i) file.put(0.5f * static_cast<float>(i + 1));
  }
  return file;
}

class Llama2c : public ::testing::Test {
 protected:
  Result<Llama2cCheckpoint> read(const Bytes& file) {
    folder_.write("m.bin", file.string());
    return read_llama2c(folder_.path("m.bin"));
  }
  std::string error_of(const Bytes& file) {
    auto checkpoint = read(file);
    return checkpoint.ok() ? "(accepted)" : checkpoint.error().message;
  }
  TemporaryFolder folder_;
};

std::vector<float> decoded(const Llama2cTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  tensor.decode(values.data());
  return values;
}

TEST_F(Llama2c, ReadsVersion0) {
  auto checkpoint = read(version0());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->version, 0);
  EXPECT_TRUE(checkpoint->shared_head);
  EXPECT_EQ(checkpoint->find("output.weight"), nullptr);
  EXPECT_EQ(checkpoint->find("token_embd.weight")->dims, (std::vector<int64_t>{kVocab, kDim}));
  EXPECT_EQ(checkpoint->find("blk.1.attn_k.weight")->dims, (std::vector<int64_t>{2, kDim}));
  // Embedding 20, attention norms 8, wq 32: wk begins at value 60.
  EXPECT_EQ(decoded(*checkpoint->find("blk.1.attn_k.weight"))[0], 68.0f);
  EXPECT_EQ(checkpoint->find("blk.0.ffn_down.weight")->dims, (std::vector<int64_t>{kDim, kFfn}));
  EXPECT_EQ(decoded(*checkpoint->find("output_norm.weight")),
            (std::vector<float>{kValues - 4, kValues - 3, kValues - 2, kValues - 1}));

  checkpoint = read(version0(false));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_FALSE(checkpoint->shared_head);
  EXPECT_EQ(decoded(*checkpoint->find("output.weight"))[3], -3.0f);
}

TEST_F(Llama2c, ReadsVersion2) {
  auto checkpoint = read(version2());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->version, 2);
  std::vector<float> embedding = decoded(*checkpoint->find("token_embd.weight"));
  EXPECT_EQ(embedding[0], -4.5f);  // -9 * 0.5
  EXPECT_EQ(embedding[11], 6.0f);  // 2 * 3, the sixth group
  EXPECT_EQ(decoded(*checkpoint->find("blk.1.ffn_up.weight")).size(), 24u);
}

TEST_F(Llama2c, RefusesDamage) {
  EXPECT_CONTAINS(error_of(Bytes().put(1)), "ends inside its header");
  EXPECT_CONTAINS(error_of(version0().zeros(4)), "remain after the last tensor");
  EXPECT_CONTAINS(error_of(version2().zeros(1)), "remain after the last tensor");
  EXPECT_CONTAINS(error_of(sizes(0)), "vocab_size is 0");
  EXPECT_CONTAINS(error_of(sizes(INT32_MIN)), "vocab_size is");
  EXPECT_CONTAINS(error_of(sizes(1 << 24)), "tensor 'token_embd.weight' at offset 28: its 67108864 values extend past");
  EXPECT_CONTAINS(error_of(Bytes().put(4).put(4).put(1).put(3).put(1).put(5).put(8)), "do not divide evenly");
  EXPECT_CONTAINS(error_of(Bytes().put(uint32_t{0x616b3432}).put(int32_t{1})), "version 1 is not supported");
  EXPECT_CONTAINS(error_of(version2(3)), "not whole groups of 3");
  Bytes nan = version0();
  float value = NAN;
  std::memcpy(&nan.bytes()[28 + 4 * 30], &value, 4);
  EXPECT_CONTAINS(error_of(nan), "'blk.0.attn_q.weight'");
}

TEST_F(Llama2c, SurvivesTruncationAndMutation) {
  for (const Bytes& file : {version0(), version2()}) {
    for (size_t length = 1; length < file.view().size(); length += 3) {
      Bytes cut;
      cut.bytes().assign(file.view().begin(), file.view().begin() + static_cast<ptrdiff_t>(length));
      EXPECT_FALSE(read(cut).ok()) << length;
    }
    for (size_t i = 0; i < 64; ++i) {
      for (int value : {0, 1, 127, 128, 255}) {
        Bytes changed = file;
        changed.bytes()[i] = static_cast<uint8_t>(value);
        auto checkpoint = read(changed);
        if (!checkpoint.ok()) continue;
        for (const Llama2cTensor& tensor : checkpoint->tensors) (void)decoded(tensor);
      }
    }
  }
}

TEST(Llama2cShared, TheThreeFilesOfOneModelAgree) {
  MILLRACE_NEEDS_SHARED("weights/stories260K/stories260K.bin");
  auto folder = testing::shared_data() / "weights/stories260K";
  auto exact = read_llama2c(folder / "stories260K.bin");
  ASSERT_TRUE(exact.ok()) << exact.error().message;
  for (const char* name : {"stories260K-q8-gs8.bin", "stories260K_q80.bin"}) {
    auto rounded = read_llama2c(folder / name);
    ASSERT_TRUE(rounded.ok()) << rounded.error().message;
    ASSERT_EQ(rounded->tensors.size(), exact->tensors.size());
    for (const Llama2cTensor& tensor : exact->tensors) {
      const Llama2cTensor* other = rounded->find(tensor.name);
      ASSERT_NE(other, nullptr) << tensor.name;
      std::vector<float> a = decoded(tensor), b = decoded(*other);
      ASSERT_EQ(a.size(), b.size());
      double largest = 0, error = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::fabs(double{a[i]}));
        error = std::max(error, std::fabs(double{a[i]} - double{b[i]}));
      }
      EXPECT_LE(error, largest / 250) << tensor.name;  // half a step of largest / 127, and a little
    }
  }
  auto tokenizer = read_llama2c_tokenizer_file("", folder / "stories260K.bin", exact->vocab);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  ASSERT_TRUE(tokenizer->has_value());
  EXPECT_EQ((*tokenizer)->tokens.size(), 512u);
  auto larger = read_llama2c(testing::shared_data() / "weights/stories3M/stories3M-q80.bin");
  ASSERT_TRUE(larger.ok()) << larger.error().message;
  EXPECT_EQ(larger->kv_heads, 2);
}

}  // namespace
}  // namespace millrace
