// One test per kind of damage in a GGUF file. Each error is one line that names the file and the location.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "contains.h"
#include "loader/gguf.h"
#include "loader/model_files.h"
#include "loader/test_bytes.h"
#include "tensor/half.h"

namespace millrace {
namespace {

using testing::Bytes;
using testing::TemporaryFolder;
using Type = GgufValueType;

constexpr uint32_t kF32 = 0, kQ8_0 = 8;

std::string error_of(const Bytes& file, ErrorKind kind = ErrorKind::corrupt) {
  auto model = open_gguf_image(file.view(), "m.gguf");
  if (model.ok()) return "(accepted)";
  EXPECT_EQ(model.error().kind, kind) << model.error().message;
  EXPECT_TRUE(model.error().message.starts_with("m.gguf: ")) << model.error().message;
  EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
  EXPECT_LT(model.error().message.size(), 400u);
  return model.error().message;
}

Bytes with_key(const Bytes& entry) { return Bytes().gguf(0, 1).append(entry); }
Bytes with_tensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset, size_t data = 64) {
  return Bytes().gguf(1, 0).info("t", dims, type, offset).pad(32).zeros(data);
}

TEST(GgufDefects, Header) {
  EXPECT_CONTAINS(error_of(Bytes()), "does not begin with 'GGUF'");
  EXPECT_CONTAINS(error_of(Bytes().raw("GGU")), "does not begin with 'GGUF'");
  EXPECT_CONTAINS(error_of(Bytes().raw("PK\x03\x04 and more")), "does not begin with 'GGUF'");
  EXPECT_CONTAINS(error_of(Bytes().raw("GGUF").put(uint16_t{3})), "ends inside its header");
  EXPECT_CONTAINS(error_of(Bytes().raw("GGUF").put(uint32_t{3}).put(uint64_t{0})), "ends inside its header");
  EXPECT_CONTAINS(error_of(Bytes().gguf(0, 0, 1), ErrorKind::unsupported), "version 1");
  EXPECT_CONTAINS(error_of(Bytes().gguf(0, 0, 4), ErrorKind::unsupported), "version 4");
  EXPECT_CONTAINS(error_of(Bytes().gguf(0, 0, 0x03000000), ErrorKind::unsupported), "big-endian");
  EXPECT_EQ(error_of(Bytes().gguf(0, 0, 2)), "(accepted)");
}

TEST(GgufDefects, AbsurdCounts) {
  for (uint64_t count : {uint64_t{1000}, uint64_t{1} << 40, ~uint64_t{0}}) {
    EXPECT_CONTAINS(error_of(Bytes().raw("GGUF").put(uint32_t{3}).put(count).put(uint64_t{0})), "declares");
    EXPECT_NE(error_of(Bytes().raw("GGUF").put(uint32_t{3}).put(uint64_t{0}).put(count)), "(accepted)");
    EXPECT_CONTAINS(error_of(with_key(Bytes().text("a").put(Type::array).put(Type::u8).put(count))), "does not fit");
    EXPECT_CONTAINS(error_of(with_key(Bytes().text("a").put(Type::array).put(Type::string).put(count))),
                    "does not fit");
    EXPECT_CONTAINS(error_of(with_key(Bytes().text("a").put(Type::string).put(count).raw("x"))), "does not fit");
    EXPECT_CONTAINS(
        error_of(with_key(Bytes().text("tokenizer.ggml.tokens").put(Type::array).put(Type::string).put(count))),
        "metadata key 'tokenizer.ggml.tokens' at offset");
  }
  EXPECT_CONTAINS(error_of(with_key(Bytes().put(~uint64_t{0}).raw("key"))), "key length");
}

TEST(GgufDefects, Keys) {
  EXPECT_CONTAINS(error_of(with_key(Bytes().key("a", Type::u8).put(uint8_t{1})).append(Bytes())), "(accepted)");
  Bytes twice = Bytes().gguf(0, 2);
  twice.key("a", Type::u8).put(uint8_t{1}).key("a", Type::u8).put(uint8_t{1});
  EXPECT_CONTAINS(error_of(twice), "metadata key 'a' at offset 83: key appears twice");
  EXPECT_CONTAINS(error_of(with_key(Bytes().key("", Type::u8).put(uint8_t{1}))), "key is empty");
  EXPECT_CONTAINS(error_of(with_key(Bytes().key("\xff", Type::u8).put(uint8_t{1}))), "not valid UTF-8");
  EXPECT_CONTAINS(error_of(with_key(Bytes().key("a\nb", Type::u8))), "'a\\x0ab'");
  EXPECT_CONTAINS(error_of(with_key(Bytes().key(std::string(5000, 'k'), Type::u8))), "kkk...'");
  EXPECT_CONTAINS(error_of(with_key(Bytes().text("a").put(uint32_t{13}))), "value type 13 is unknown");
  EXPECT_CONTAINS(error_of(with_key(Bytes().key("a", Type::array).put(uint32_t{77}).put(uint64_t{0}))),
                  "element type 77 is unknown");
  EXPECT_CONTAINS(error_of(with_key(Bytes().key("a", Type::boolean).put(uint8_t{2}))), "neither 0 nor 1");
  // A key that nothing reads may hold anything; ConfigReader refuses NaN where it is read.
  EXPECT_EQ(error_of(with_key(Bytes().key("a", Type::f32).put(std::nanf("")))), "(accepted)");
  EXPECT_EQ(error_of(with_key(Bytes().key("a", Type::f64).put(std::nan("")))), "(accepted)");
  EXPECT_CONTAINS(error_of(with_key(Bytes().key("a", Type::u32).put(uint16_t{1}))), "the file ends inside it");
}

TEST(GgufDefects, DeepAndLargeArrays) {
  Bytes deep;
  deep.key("a", Type::array);
  for (int i = 0; i < 100000; ++i) deep.put(Type::array).put(uint64_t{1});
  EXPECT_CONTAINS(error_of(with_key(deep.put(Type::u8).put(uint64_t{0}))), "nest deeper than 8");
  Bytes wide;
  wide.key("a", Type::array).put(Type::u8).put(uint64_t{2} << 20).zeros(2 << 20);
  EXPECT_CONTAINS(error_of(with_key(wide)), "at most 1048576 in total");
}

TEST(GgufDefects, ArchitectureAndAlignment) {
  EXPECT_CONTAINS(error_of(Bytes().raw("GGUF").put(uint32_t{3}).put(uint64_t{0}).put(uint64_t{0})),
                  "'general.architecture' is missing");
  Bytes number;
  number.raw("GGUF").put(uint32_t{3}).put(uint64_t{0}).put(uint64_t{1});
  EXPECT_CONTAINS(error_of(number.key("general.architecture", Type::u32).put(uint32_t{1})), "is not a string");
  for (uint32_t alignment : {0u, 3u, 48u, 1u << 21}) {
    EXPECT_CONTAINS(error_of(with_key(Bytes().key("general.alignment", Type::u32).put(alignment))), "power of two");
  }
  EXPECT_CONTAINS(error_of(with_key(Bytes().key("general.alignment", Type::string).text("32"))), "power of two");
  Bytes aligned = Bytes().gguf(1, 1).key("general.alignment", Type::u32).put(uint32_t{256});
  aligned.info("t", {2}, kF32, 256).pad(256).zeros(264);
  EXPECT_EQ(error_of(aligned), "(accepted)");
}

TEST(GgufDefects, TensorEntries) {
  EXPECT_EQ(error_of(with_tensor({4, 2}, kF32, 0)), "(accepted)");
  EXPECT_EQ(error_of(with_tensor({}, kF32, 0)), "(accepted)");
  EXPECT_CONTAINS(error_of(with_tensor({1, 1, 1, 1, 1}, kF32, 0)), "has 5 dimensions");
  EXPECT_EQ(error_of(with_tensor({4, 0}, kF32, 0)), "(accepted)");
  EXPECT_CONTAINS(error_of(with_tensor({uint64_t{1} << 63}, kF32, 0)), "dimension of size 9223372036854775808");
  EXPECT_CONTAINS(error_of(with_tensor({uint64_t{1} << 61, 4}, kF32, 0)), "more than 2^63 bytes");
  EXPECT_CONTAINS(error_of(with_tensor({32, uint64_t{1} << 58, 1, 1}, kQ8_0, 0)), "more than 2^63 bytes");
  EXPECT_CONTAINS(error_of(with_tensor({256, uint64_t{1} << 56, 1, 1}, 16, 0)), "more than 2^63 bytes");  // values
  EXPECT_CONTAINS(error_of(with_tensor({uint64_t{1} << 32, uint64_t{1} << 32, 1, 2}, 24, 0)), "more than 2^63 bytes");
  EXPECT_CONTAINS(error_of(with_tensor({31}, kQ8_0, 0)), "not whole Q8_0 blocks of 32");
  EXPECT_CONTAINS(error_of(with_tensor({4}, 99, 0)), "tensor type 99 is unknown");
  EXPECT_CONTAINS(error_of(with_tensor({4}, 4, 0), ErrorKind::unsupported), "Q4_2 was removed");
  EXPECT_CONTAINS(error_of(Bytes().gguf(1, 0).info("", {1}, kF32, 0).zeros(64)), "name of 0 bytes");
  EXPECT_CONTAINS(error_of(Bytes().gguf(1, 0).info(std::string(2000, 'n'), {1}, kF32, 0).zeros(64)), "name of 2000");
  EXPECT_CONTAINS(error_of(Bytes().gguf(1, 0).info("\xc0", {1}, kF32, 0).zeros(64)), "not valid UTF-8");
  EXPECT_CONTAINS(error_of(Bytes().gguf(2, 0).info("t", {1}, kF32, 0).info("t", {1}, kF32, 32).pad(32).zeros(64)),
                  "tensor 't' at data offset 32: name appears twice");
  EXPECT_CONTAINS(error_of(Bytes().gguf(1, 0).text("t").put(uint32_t{1}).put(uint64_t{4}).zeros(11)),
                  "the file ends inside the tensor table");
}

// Tensors that nothing can use are not refused: one without elements is left out, one without dimensions is a value.
TEST(GgufDefects, EmptyTensorsAndScalars) {
  Bytes file = Bytes().gguf(3, 0).info("none", {0}, kQ8_0, 0).info("one", {}, kF32, 0).info("w", {4}, kF32, 32);
  file.pad(32).zeros(64);  // the model's tensors are views of these bytes
  auto model = open_gguf_image(file.view(), "m.gguf");
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->tensors.size(), 2u);
  EXPECT_FALSE(model->find("none"));
  EXPECT_EQ(model->find("one")->tensor.values(), 1);
  EXPECT_EQ(model->find("one")->tensor.bytes, 4);
  EXPECT_TRUE(check_finite(*model).ok());
}

TEST(GgufDefects, TensorRanges) {
  EXPECT_CONTAINS(error_of(with_tensor({4, 8}, kF32, 0)), "its 128 bytes extend past the end of the file (192 bytes)");
  EXPECT_CONTAINS(error_of(with_tensor({4}, kF32, 96)), "past the end");
  EXPECT_CONTAINS(error_of(with_tensor({4}, kF32, ~uint64_t{31})), "2^64");
  EXPECT_CONTAINS(error_of(with_tensor({4}, kF32, (~uint64_t{31}) - 128)), "past the end");
  EXPECT_CONTAINS(error_of(with_tensor({4}, kF32, 4)), "not aligned to 32 bytes");
  EXPECT_CONTAINS(error_of(with_tensor({uint64_t{1} << 60}, kF32, 0)), "past the end");
  Bytes overlap = Bytes().gguf(2, 0).info("a", {16}, kF32, 0).info("b", {4}, kF32, 32).pad(32).zeros(64);
  EXPECT_CONTAINS(error_of(overlap), "overlaps tensor 'a' at offset 160");
  Bytes same = Bytes().gguf(2, 0).info("a", {4}, kF32, 0).info("b", {4}, kF32, 0).pad(32).zeros(64);
  EXPECT_CONTAINS(error_of(same), "overlaps");
}

TEST(GgufDefects, NonFiniteValues) {
  Bytes file = Bytes().gguf(2, 0).info("f", {4}, kF32, 0).info("q", {64}, kQ8_0, 32).pad(32);
  size_t data = file.bytes().size();
  file.zeros(32 + 68);
  auto check = [&] {
    auto model = open_gguf_image(file.view(), "m.gguf");
    EXPECT_TRUE(model.ok());
    auto checked = check_finite(*model);
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_EQ(check(), "");
  uint16_t nan = f32_to_f16(std::nanf(""));
  std::memcpy(&file.bytes()[data + 32 + 34], &nan, 2);
  EXPECT_EQ(check(),
            "m.gguf: tensor 'q' at offset " + std::to_string(data + 32 + 34) +
                ": Q8_0 block 1 has a scale or value that is not finite (NaN or infinite); the file is damaged");
  float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(&file.bytes()[data + 8], &infinite, 4);
  EXPECT_CONTAINS(check(), "tensor 'f' at offset " + std::to_string(data + 8) + ": F32 block 2");
}

TEST(GgufDefects, Tokenizers) {
  auto tokenizer = [](uint64_t more, const Bytes& keys) {
    Bytes file = Bytes().gguf(0, 2 + more).key("tokenizer.ggml.model", Type::string).text("llama");
    file.key("tokenizer.ggml.tokens", Type::array).put(Type::string).put(uint64_t{3}).text("a").text("b").text("c");
    return error_of(file.append(keys));
  };
  EXPECT_EQ(tokenizer(0, Bytes()), "(accepted)");
  Bytes scores;
  scores.key("tokenizer.ggml.scores", Type::array).put(Type::f32).put(uint64_t{1});
  EXPECT_CONTAINS(tokenizer(1, Bytes(scores).put(1.0f)), "holds 1 values for 3 tokens");
  EXPECT_CONTAINS(tokenizer(1, Bytes(scores).put(std::nanf(""))), "not a number");
  Bytes types;
  types.key("tokenizer.ggml.token_type", Type::array).put(Type::i32).put(uint64_t{3});
  EXPECT_CONTAINS(tokenizer(1, types.put(1).put(7).put(1)), "type of token 1 is 7");
  EXPECT_CONTAINS(tokenizer(1, Bytes().key("tokenizer.ggml.merges", Type::array).put(Type::u8).put(uint64_t{0})),
                  "not of strings");
  EXPECT_CONTAINS(tokenizer(1, Bytes().key("tokenizer.ggml.merges", Type::u8).put(uint8_t{0})), "is not an array");
  EXPECT_CONTAINS(tokenizer(1, Bytes().key("tokenizer.ggml.eos_token_id", Type::u32).put(3)),
                  "outside the vocabulary of 3");
  EXPECT_CONTAINS(tokenizer(1, Bytes().key("tokenizer.ggml.eos_token_id", Type::string).text("x")), "not an integer");
  EXPECT_CONTAINS(tokenizer(1, Bytes().key("tokenizer.ggml.add_bos_token", Type::u8).put(uint8_t{1})), "not a boolean");
  EXPECT_EQ(tokenizer(1, Bytes().key("tokenizer.ggml.padding_token_id", Type::u32).put(3)), "(accepted)");
  EXPECT_EQ(tokenizer(1, Bytes().key("tokenizer.ggml.bos_token_id", Type::u32).put(~0u)), "(accepted)");
}

// Many keys must not make the reader slow: each is looked up once.
TEST(GgufDefects, ManyKeysTakeLinearTime) {
  constexpr uint64_t kKeys = 65000;
  Bytes file = Bytes().gguf(0, kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) file.key("key" + std::to_string(i), Type::u8).put(uint8_t{0});
  EXPECT_EQ(error_of(file), "(accepted)");
}

Bytes small_model() {
  Bytes file = Bytes().gguf(2, 5);
  file.key("a", Type::array)
      .put(Type::array)
      .put(uint64_t{1})
      .put(Type::i16)
      .put(uint64_t{2})
      .put(int16_t{1})
      .put(int16_t{2});
  file.key("general.alignment", Type::u32).put(uint32_t{8});
  file.key("tokenizer.ggml.model", Type::string).text("llama");
  file.key("tokenizer.ggml.tokens", Type::array).put(Type::string).put(uint64_t{2}).text("x").text("yz");
  file.key("tokenizer.ggml.scores", Type::array).put(Type::f32).put(uint64_t{2}).put(0.0f).put(1.0f);
  return file.info("w", {32, 1}, kQ8_0, 0).info("v", {3}, kF32, 40).pad(8).zeros(52);
}

void read_all(std::span<const uint8_t> image) {
  auto model = open_gguf_image(image, "m.gguf");
  if (!model.ok()) return;
  (void)check_finite(*model);  // touches every byte of every tensor
}

// Every truncation is rejected; every byte change is read or rejected without leaving the image.
TEST(GgufDefects, SurvivesEveryMutationOfASmallFile) {
  Bytes file = small_model();
  ASSERT_EQ(error_of(file), "(accepted)");
  for (size_t length = 0; length < file.bytes().size(); ++length) {
    std::vector<uint8_t> cut(file.bytes().begin(), file.bytes().begin() + static_cast<ptrdiff_t>(length));
    EXPECT_FALSE(open_gguf_image(cut, "m.gguf").ok()) << length;
  }
  for (size_t i = 0; i < file.bytes().size(); ++i) {
    for (int value : {0, 1, 2, 3, 4, 8, 9, 16, 31, 32, 64, 127, 128, 200, 254, 255}) {
      std::vector<uint8_t> changed = file.bytes();
      changed[i] = static_cast<uint8_t>(value);
      read_all(changed);
    }
  }
}

// --- split files ---

Bytes part(uint16_t number, uint16_t parts, const char* tensor, int32_t total = 2) {
  Bytes file = Bytes().gguf(1, 3);
  file.key("split.no", Type::u16).put(number).key("split.count", Type::u16).put(parts);
  file.key("split.tensors.count", Type::i32).put(total);
  return file.info(tensor, {2}, kF32, 0).pad(32).put(static_cast<float>(number)).put(1.0f);
}

TEST(GgufSplit, OpensFromAnyPart) {
  TemporaryFolder folder;
  folder.write("m-00001-of-00002.gguf", part(0, 2, "a").string());
  folder.write("m-00002-of-00002.gguf", part(1, 2, "b").string());
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    auto model = open_model_files(folder.path(name));
    ASSERT_TRUE(model.ok()) << model.error().message;
    ASSERT_EQ(model->tensors.size(), 2u);
    EXPECT_EQ(model->tensors[1].name, "b");
    EXPECT_EQ(model->files[model->tensors[1].file]->path(), folder.path("m-00002-of-00002.gguf"));
    float value = 0;
    std::memcpy(&value, model->find("b")->tensor.data, sizeof(value));
    EXPECT_EQ(value, 1.0f);
  }
}

TEST(GgufSplit, RefusesPartsThatDisagree) {
  TemporaryFolder folder;
  auto error = [&](const Bytes& first, const Bytes& second) {
    folder.write("m-00001-of-00002.gguf", first.string());
    folder.write("m-00002-of-00002.gguf", second.string());
    auto model = open_model_files(folder.path("m-00001-of-00002.gguf"));
    return model.ok() ? "(accepted)" : model.error().message;
  };
  EXPECT_CONTAINS(error(part(0, 2, "a"), part(1, 2, "a")), "another part of the split file also contains it");
  EXPECT_CONTAINS(error(part(0, 2, "a"), part(0, 2, "b")), "'split.no' must be 1 in part 2 of 2");
  EXPECT_CONTAINS(error(part(0, 2, "a"), part(1, 3, "b")), "'split.count' is 3");
  EXPECT_CONTAINS(error(part(0, 2, "a", 5), part(1, 2, "b")), "contain 2 tensors");
  EXPECT_CONTAINS(error(part(0, 3, "a"), part(1, 3, "b")), "is one of 3 parts");
  folder.write("whole.gguf", part(0, 2, "a").string());
  EXPECT_CONTAINS(open_model_files(folder.path("whole.gguf")).error().message, "is one of 2 parts");
  folder.write("n-00001-of-00002.gguf", part(0, 2, "a").string());
  EXPECT_CONTAINS(open_model_files(folder.path("n-00001-of-00002.gguf")).error().message,
                  "n-00002-of-00002.gguf: cannot open");
  EXPECT_CONTAINS(open_gguf_image(part(0, 2, "a").view(), "m").error().message, "must not be split");
}

}  // namespace
}  // namespace millrace
