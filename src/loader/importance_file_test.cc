// Importance matrices of both published kinds, written by hand, and back and forth; what is wrong in a file is named.
#include "loader/importance_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "contains.h"
#include "loader/gguf_writer.h"
#include "loader/test_bytes.h"

namespace millrace {
namespace {

using namespace testing;

Bytes& put_name(Bytes& to, std::string_view name) { return to.put(static_cast<int32_t>(name.size())).raw(name); }

Bytes& put_entry(Bytes& to, std::string_view name, int32_t calls, const std::vector<float>& values) {
  put_name(to, name).put(calls).put(static_cast<int32_t>(values.size()));
  for (float value : values) to.put(value);
  return to;
}

Bytes older_file() {
  Bytes out;
  out.put(int32_t{2});
  put_entry(out, "blk.0.attn_q.weight", 4, {4, 8, 0, 2});
  put_entry(out, "blk.0.ffn_up_exps.weight", 2, {2, 4, 6, 8});
  return out;
}

// The GGUF kind, by the bytes of its specification.
Bytes gguf_file() {
  Bytes out;
  out.raw("GGUF").put(uint32_t{3}).put(uint64_t{4}).put(uint64_t{4});
  out.key("general.type", GgufValueType::string).text("imatrix");
  out.key("imatrix.datasets", GgufValueType::array).put(GgufValueType::string).put(uint64_t{2}).text("a.txt").text("b");
  out.key("imatrix.chunk_count", GgufValueType::u32).put(uint32_t{5});
  out.key("imatrix.chunk_size", GgufValueType::u32).put(uint32_t{512});
  out.info("blk.0.attn_q.weight.in_sum2", {4, 1}, 0, 0);
  out.info("blk.0.attn_q.weight.counts", {1, 1}, 0, 32);
  out.info("blk.0.ffn_up_exps.weight.in_sum2", {2, 3}, 0, 64);
  out.info("blk.0.ffn_up_exps.weight.counts", {1, 3}, 0, 96);
  out.pad(32);
  for (float value : {10.f, 20.f, 0.f, 5.f}) out.put(value);
  out.pad(32).put(10.f).pad(32);
  for (float value : {2.f, 4.f, 9.f, 9.f, 3.f, 6.f}) out.put(value);
  out.pad(32);
  for (float value : {2.f, 0.f, 3.f}) out.put(value);
  return out.pad(32);
}

class ImportanceFiles : public ::testing::Test {
 protected:
  Result<ImportanceFile> read(const Bytes& bytes) {
    folder_.write("file", bytes.string());
    return read_importance_file(folder_.path("file"));
  }
  std::string failure(const Bytes& bytes) {
    auto done = read(bytes);
    EXPECT_FALSE(done.ok());
    std::string message = done.ok() ? "" : done.error().message;
    const std::string path = folder_.path("file");
    return message.starts_with(path) ? message.substr(path.size()) : message;
  }
  static std::vector<float> weights(const ImportanceFile& file, const std::string& name, int64_t experts,
                                    int64_t cols) {
    auto found = file.weights(name, experts, cols);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? *found : std::vector<float>();
  }
  TemporaryFolder folder_;
};

TEST_F(ImportanceFiles, OlderKind) {
  Bytes bytes = older_file();
  auto bare = read(bytes);
  ASSERT_TRUE(bare.ok()) << bare.error().message;
  EXPECT_EQ(bare->chunks, 0);
  bytes.put(int32_t{7});
  put_name(bytes, "wiki.txt");
  auto file = read(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->chunks, 7);
  EXPECT_EQ(file->datasets, std::vector<std::string>{"wiki.txt"});
  EXPECT_EQ(weights(*file, "blk.0.attn_q.weight", 1, 4), (std::vector<float>{1, 2, 0, 0.5}));
  EXPECT_EQ(weights(*file, "blk.0.ffn_up_exps.weight", 2, 2), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(weights(*file, "blk.9.attn_q.weight", 1, 4), std::vector<float>());
}

TEST_F(ImportanceFiles, GgufKind) {
  auto file = read(gguf_file());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->chunks, 5);
  EXPECT_EQ(file->chunk_size, 512);
  EXPECT_EQ(file->datasets, (std::vector<std::string>{"a.txt", "b"}));
  EXPECT_EQ(weights(*file, "blk.0.attn_q.weight", 1, 4), (std::vector<float>{1, 2, 0, 0.5}));
  // The second expert was never chosen.
  EXPECT_EQ(weights(*file, "blk.0.ffn_up_exps.weight", 3, 2), (std::vector<float>{1, 2, 1, 1, 1, 2}));
}

TEST_F(ImportanceFiles, WrittenFilesAreReadBack) {
  auto file = read(gguf_file());
  ASSERT_TRUE(file.ok());
  for (const char* name : {"out.imatrix", "out.dat"}) {
    const std::string path = folder_.path(name);
    ASSERT_TRUE(write_importance_file(*file, path).ok());
    auto again = read_importance_file(path);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->chunks, 5);
    EXPECT_EQ(again->datasets.front(), "a.txt");
    EXPECT_EQ(weights(*again, "blk.0.attn_q.weight", 1, 4), (std::vector<float>{1, 2, 0, 0.5})) << name;
    const auto experts = weights(*again, "blk.0.ffn_up_exps.weight", 3, 2);
    EXPECT_EQ(experts[4], 1) << name;
    EXPECT_EQ(experts[5], 2) << name;
  }
  // Ours is what the bytes of the specification say, but for the order of tensors.
  EXPECT_EQ(std::ifstream(folder_.path("out.imatrix")).get(), 'G');
  auto failed = write_importance_file(*file, folder_.path("none/out.dat"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().kind, ErrorKind::user);
}

TEST_F(ImportanceFiles, SaysWhatIsWrong) {
  EXPECT_EQ(failure(Bytes()), ": file is empty");
  EXPECT_EQ(failure(Bytes().put(int16_t{1})), ": is neither a GGUF file nor an importance matrix, at offset 0");
  EXPECT_EQ(failure(Bytes().put(int32_t{-1})), ": is neither a GGUF file nor an importance matrix, at offset 4");
  EXPECT_EQ(failure(Bytes().put(int32_t{1}).put(int32_t{1 << 30})),
            ": the name of an entry is cut short or too long, at offset 8");
  Bytes cut;
  cut.put(int32_t{1});
  put_name(cut, "a").put(int32_t{1}).put(int32_t{1 << 30}).put(1.0f);
  EXPECT_EQ(failure(cut), ": entry a is cut short, at offset 17");
  for (float bad : {NAN, -1.0f}) {
    Bytes wrong;
    wrong.put(int32_t{1});
    EXPECT_CONTAINS(failure(put_entry(wrong, "a", 1, {1, bad})), ": entry a holds ");
  }
  Bytes twice;
  twice.put(int32_t{2});
  put_entry(twice, "a", 1, {1});
  EXPECT_CONTAINS(failure(put_entry(twice, "a", 1, {1})), ": entry a is there twice");
  Bytes all = gguf_file();
  for (size_t length : {5, 30, 100, 260, 400}) {  // cut anywhere: an error, and no crash
    Bytes part;
    part.raw(all.string().substr(0, length));
    EXPECT_FALSE(read(part).ok()) << length;
  }
  Bytes model;
  model.gguf(0, 0);
  EXPECT_EQ(failure(model), ": is a GGUF file, but no importance matrix: general.type is not imatrix");
  GgufWriter writer;
  writer.set_string("general.type", "imatrix");
  const auto zeros = [](uint8_t* to, int64_t bytes) -> Result<void> {
    std::fill_n(to, bytes, uint8_t{0});
    return {};
  };
  writer.add_tensor("a.in_sum2", find_format("f32"), {1, 4}, zeros);
  ASSERT_TRUE(writer.write(folder_.path("file")).ok());
  auto lonely = read_importance_file(folder_.path("file"));
  ASSERT_FALSE(lonely.ok());
  EXPECT_CONTAINS(lonely.error().message, ": a has 4 sums and 0 counts; there must be a count for every expert");

  auto file = read(older_file());
  ASSERT_TRUE(file.ok());
  auto other = file->weights("blk.0.attn_q.weight", 1, 8);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().kind, ErrorKind::user);
  EXPECT_CONTAINS(other.error().message,
                  "blk.0.attn_q.weight has 4 values, but the matrix has 8 inputs; the file belongs to another model");
  EXPECT_FALSE(read_importance_file(folder_.path("missing")).ok());
}

}  // namespace
}  // namespace millrace
