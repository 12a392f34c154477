// Matrices that are stored as indices into a codebook: a model with them is the model of the decoded weights in Q8_0,
// whatever the chunks and threads, beside other weight parts and in fused matrices; what they take is in the memory
// account; what is wrong in a file is named.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model_runner.h"
#include "run/language_model.h"
#include "tensor/codebook.h"
#include "tensor/half.h"
#include "test_paths.h"
#include "weight_parts_file.h"

namespace millrace {
namespace {

using namespace testing;
using Values = std::vector<float>;

std::string model_file(const std::string& name) {
  return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf";
}

std::vector<TokenId> some_prompt(int64_t count) {
  std::vector<TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<TokenId>(1 + i * 7 % 40));
  return out;
}

// Of a codebook: bits, values of an entry, books, and the rows and columns of a table, 0 for all.
struct BookKind {
  int bits = 4, dim = 1, books = 1;
  int64_t rows = 1, cols = 0;
};
constexpr BookKind kBookKinds[] = {
    {}, {3}, {8, 8, 2, 0, 0}, {5, 2, 1, 12, 16}, {4, 1, 1, 1, 24}, {1, 1, 3, 3, 0}, {8, 8, 2, 12, 0}, {2, 1, 1, 1, 32}};

WrittenPart f16_tensor(std::vector<int64_t> dims, const Values& values) {
  WrittenPart out{std::move(dims), {}, find_format("f16"), {}};
  out.bytes.resize(values.size() * 2);
  out.format->encode(values.data(), out.bytes.data(), std::ssize(values));
  return out;
}

// What kernels round to 8 bits.
bool is_small(const BookKind& kind) {
  return kind.bits <= 4 && kind.dim == 1 && kind.books == 1 && kind.cols % 32 == 0;
}

bool is_words(const BookKind& kind) {
  return kind.dim == 8 && (kind.bits == 8 || kind.bits >= 14) && kind.rows == 0 && kind.cols == 0;
}

constexpr float kSmallScale = 1.0f / 1024;

// Levels of -127 to 127 times kSmallScale, the first 127, so that kernels round nothing.
void make_small(Values& entries, int64_t table_values) {
  for (size_t i = 0; i < entries.size(); ++i)
    entries[i] = kSmallScale * (i % static_cast<size_t>(table_values) == 0 ? 127 : std::round(entries[i] * 600));
}

// The same, with sums of one of each book of at most 127, which the first of each together have.
void make_words(Values& entries, const BookKind& kind) {
  const size_t book_values = entries.size() / static_cast<size_t>(kind.books);
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool first_book = i < book_values, first_word = i % book_values < static_cast<size_t>(kind.dim);
    const int most = 127 / kind.books, top = first_book ? 127 - most * (kind.books - 1) : most;
    const int level = static_cast<int>(std::round(entries[i] * 5 * static_cast<float>(most)));
    entries[i] = kSmallScale * static_cast<float>(first_word ? top : std::clamp(level, -most, most));
  }
}

// Any matrix in Q8_0.
WrittenPart rounded_tensor(const WrittenPart& values) {
  WrittenPart out{values.dims, {}, find_format("q8_0"), {}};
  out.bytes.resize(static_cast<size_t>(out.format->row_bytes(std::ssize(values.values))));
  out.format->encode(values.values.data(), out.bytes.data(), std::ssize(values.values));
  return out;
}

// A matrix of such weights in Q8_0.
WrittenPart q8_0_tensor(const WrittenPart& values) {
  WrittenPart out{values.dims, {}, find_format("q8_0"), {}};
  const uint16_t scale = f32_to_f16(kSmallScale);
  for (size_t i = 0; i < values.values.size(); ++i) {
    if (i % 32 == 0) {
      out.bytes.push_back(static_cast<uint8_t>(scale));
      out.bytes.push_back(static_cast<uint8_t>(scale >> 8));
    }
    out.bytes.push_back(static_cast<uint8_t>(static_cast<int8_t>(values.values[i] / kSmallScale)));
  }
  return out;
}

// A random matrix as indices, and in `plain` its values as they are multiplied.
void add_codebook(const ModelFiles& files, const std::string& name, const BookKind& kind, PartTensors& to,
                  PartTensors& plain) {
  const StoredTensor* stored = files.find(name + ".weight");
  ASSERT_NE(stored, nullptr) << name;
  const int64_t rows = stored->tensor.rows(), cols = stored->tensor.cols();
  Codebook book{.bits = kind.bits, .dim = kind.dim, .books = kind.books};
  book.rows_per_table = kind.rows > 0 ? kind.rows : rows;
  book.cols_per_table = kind.cols > 0 ? kind.cols : cols;
  book.tables_per_row = (cols + book.cols_per_table - 1) / book.cols_per_table;
  const int64_t tables = (rows + book.rows_per_table - 1) / book.rows_per_table * book.tables_per_row;
  Values entries = part_values(name, tables * book.table_values(), 0.2);
  if (is_small(kind)) make_small(entries, book.table_values());
  if (is_words(kind)) make_words(entries, kind);
  for (float entry : entries) book.entries.push_back(f32_to_f16(entry));
  WrittenPart indices{{rows, book.row_bytes(cols)}, {}, &codebook_indices(), {}};
  indices.bytes.resize(static_cast<size_t>(rows * book.row_bytes(cols)));
  WrittenPart decoded{{rows, cols}, Values(static_cast<size_t>(rows * cols))};
  const Values random = part_values(name + "indices", rows * cols * book.books, 1);
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* row = indices.bytes.data() + r * book.row_bytes(cols);
    for (int64_t i = 0; i < cols / book.dim * book.books; ++i)
      set_codebook_index(book, row, i,
                         static_cast<uint32_t>(std::fabs(random[static_cast<size_t>(r * cols + i)]) * 0.999f *
                                               static_cast<float>(1 << book.bits)));
    decode_codebook(book, row, r, 0, cols, decoded.values.data() + r * cols);
  }
  to[name + ".weight"] = std::move(indices);
  to[name + ".codebook"] = f16_tensor({tables, book.books, int64_t{1} << book.bits, book.dim}, entries);
  if (kind.cols > 0 || kind.rows > 1)
    to[name + ".codebook_groups"] = {
        {2}, {static_cast<float>(book.rows_per_table), static_cast<float>(book.cols_per_table)}};
  plain[name + ".weight"] = is_small(kind) || is_words(kind) ? q8_0_tensor(decoded) : rounded_tensor(decoded);
}

Values logits_of(const std::string& path, int threads, int64_t chunk) {
  auto runner = TestRunner::load(path, {.threads = threads});
  EXPECT_TRUE(runner.ok()) << runner.error().message;
  return runner.ok() ? (*runner)->logits(some_prompt(40), chunk) : Values();
}

struct Coded {
  std::string model;
  std::vector<std::string> matrices;
};

class CodebooksOf : public ::testing::TestWithParam<Coded> {};

TEST_P(CodebooksOf, AModelIsThatOfTheDecodedWeights) {
  auto files = open_model_files(model_file(GetParam().model));
  ASSERT_TRUE(files.ok());
  PartTensors parts, plain;
  int i = 0;
  for (const std::string& name : GetParam().matrices)
    add_codebook(*files, name, kBookKinds[i++ % std::size(kBookKinds)], parts, plain);
  const int64_t cols = plain.begin()->second.dims[1], rows = plain.begin()->second.dims[0];
  const std::string other = plain.begin()->first.substr(0, plain.begin()->first.size() - 7);
  for (PartTensors* both : {&parts, &plain}) {  // beside a codebook
    add_order(*both, other, cols);
    add_sparse(*both, other, rows, cols, 29);
  }
  const PartedModel coded(model_file(GetParam().model), parts), floats(model_file(GetParam().model), plain);
  const Values want = logits_of(floats.path(), 1, 0), got = logits_of(coded.path(), 1, 0);
  ASSERT_EQ(want.size(), got.size());
  double largest = 0;
  for (float x : want) largest = std::max(largest, std::fabs(double{x}));
  for (size_t at = 0; at < want.size(); ++at) ASSERT_NEAR(got[at], want[at], 2e-4 * largest) << at;
  for (int threads : {1, 3})
    for (int64_t chunk : {1, 9}) EXPECT_TRUE(logits_of(coded.path(), threads, chunk) == got) << threads << " " << chunk;
}

INSTANTIATE_TEST_SUITE_P(
    Models, CodebooksOf,
    ::testing::Values(Coded{"llama",
                            {"blk.1.attn_q", "blk.1.attn_k", "blk.1.attn_v", "blk.1.attn_output", "blk.1.ffn_gate",
                             "blk.1.ffn_up", "blk.1.ffn_down", "output", "blk.0.attn_q"}},
                      Coded{"phi3", {"blk.1.attn_qkv", "blk.0.attn_qkv", "blk.0.ffn_up", "blk.1.ffn_up"}},
                      Coded{"qwen2moe", {"blk.1.attn_v", "blk.1.ffn_up_shexp", "blk.1.ffn_gate_shexp"}}),
    [](const auto& one) { return one.param.model; });

TEST(Codebooks, SmallTablesAndWordsMultiplyAsQ8_0) {
  auto files = open_model_files(model_file("llama"));
  ASSERT_TRUE(files.ok());
  constexpr BookKind kSmall[] = {{4}, {3}, {2, 1, 1, 4, 0}, {1}, {8, 8, 2, 0, 0}, {16, 8, 1, 0, 0}, {8, 8, 1, 0, 0}};
  PartTensors parts, plain;
  int i = 0;
  for (const char* name : {"blk.0.attn_q", "blk.0.ffn_up", "blk.1.attn_k", "blk.1.ffn_gate", "blk.1.ffn_up",
                           "blk.1.ffn_down", "blk.1.attn_v", "blk.0.attn_output", "output"})
    add_codebook(*files, name, kSmall[i++ % std::size(kSmall)], parts, plain);
  const PartedModel coded(model_file("llama"), parts), rounded(model_file("llama"), plain);
  for (int64_t chunk : {0, 1, 9})
    EXPECT_TRUE(logits_of(coded.path(), 2, chunk) == logits_of(rounded.path(), 2, chunk)) << chunk;
}

// Tables belong to their packed matrices; words stay beside them.
TEST(Codebooks, MemoryIsInTheAccountWeights) {
  auto files = open_model_files(model_file("llama"));
  ASSERT_TRUE(files.ok());
  const auto weights = [&](const BookKind& kind) {
    PartTensors parts, plain;
    add_codebook(*files, "blk.1.ffn_up", kind, parts, plain);
    const PartedModel file(model_file("llama"), parts);
    auto runner = TestRunner::load(file.path(), {});
    EXPECT_TRUE(runner.ok()) << runner.error().message;
    const Weight& up = (*runner)->model().layer(1).mlp.up;
    EXPECT_TRUE(up.codebook->entries.empty());
    return std::pair((*runner)->model().weight_bytes() - up.packed.bytes(), up.codebook->bytes());
  };
  const auto [small, small_tables] = weights({});
  const auto [large, large_tables] = weights({8, 8, 2, 12, 0});
  EXPECT_EQ(small_tables, 0);
  EXPECT_EQ(large_tables, 0);
  EXPECT_EQ(large, small);
  const auto [rounded, words] = weights({8, 8, 2, 0, 0});
  EXPECT_EQ(words, 2 * 256 * 8);
  EXPECT_EQ(rounded - words, small);
}

TEST(Codebooks, SayWhatIsWrong) {
  auto files = open_model_files(model_file("llama"));
  ASSERT_TRUE(files.ok());
  const std::string q = "blk.0.attn_q";
  const int64_t rows = files->find(q + ".weight")->tensor.rows(), cols = files->find(q + ".weight")->tensor.cols();
  const auto failure = [&](auto edit) {
    PartTensors parts, plain;
    add_codebook(*files, q, {}, parts, plain);
    edit(parts);
    const PartedModel file(model_file("llama"), parts);
    auto runner = TestRunner::load(file.path(), {});
    EXPECT_FALSE(runner.ok());
    std::string message = runner.ok() ? "" : runner.error().message;
    if (message.starts_with(file.path())) message.erase(0, file.path().size());
    const size_t offset = message.find(" at offset ");
    if (offset != std::string::npos) message.erase(offset, message.find(' ', offset + 11) - offset);
    return message;
  };
  EXPECT_EQ(failure([&](PartTensors& p) { p.erase(q + ".codebook"); }), ": tensor blk.0.attn_q.weight has type I8");
  EXPECT_EQ(failure([&](PartTensors& p) { p.erase(q + ".weight"); }),
            fmt::format(": tensor blk.0.attn_q.weight is F32 of shape [{0}, {1}], must be I8 [{0}, {2}]: indices of 4 "
                        "bits for a codebook",
                        rows, cols, cols / 2));
  EXPECT_EQ(failure([&](PartTensors& p) {
              p[q + ".codebook"] = {{rows, 1, 16, 1}, Values(rows * 16)};
            }),
            ": tensor blk.0.attn_q.codebook is F32 with 4 dimensions, must be F16 [tables, books, entries, dim]");
  EXPECT_EQ(failure([&](PartTensors& p) {
              p[q + ".codebook"] = f16_tensor({rows, 1, 12, 1}, Values(rows * 12));
            }),
            fmt::format(": tensor blk.0.attn_q.codebook has 1 books of 12 entries of 1 values: at most 8 books, 65536 "
                        "entries and 16 values, both powers of two, for {} columns",
                        cols));
  EXPECT_EQ(failure([&](PartTensors& p) {
              p[q + ".codebook"] = f16_tensor({rows + 1, 1, 16, 1}, Values(rows * 16 + 16));
            }),
            fmt::format(": tensor blk.0.attn_q.codebook has {} tables, must have {}: one for 1 rows and {} columns",
                        rows + 1, rows, cols));
  EXPECT_EQ(
      failure([&](PartTensors& p) {
        p[q + ".codebook_groups"] = {{2}, {0, 8}};
      }),
      ": tensor blk.0.attn_q.codebook_groups has 0 rows and 8 columns: at least 1, and columns in multiples of 1");
  Values broken(static_cast<size_t>(rows * 16));
  broken[5] = INFINITY;
  EXPECT_EQ(failure([&](PartTensors& p) {
              p[q + ".codebook"] = f16_tensor({rows, 1, 16, 1}, broken);
              p[q + ".codebook"].bytes[11] = 0x7c;  // encoding clamps infinities
            }),
            ": tensor blk.0.attn_q.codebook holds NaN or infinity");
  EXPECT_EQ(failure([&](PartTensors& p) {
              p[q + ".codebook_scales"] = {{3}, {1, 2, 3}};
            }),
            fmt::format(": tensor blk.0.attn_q.codebook_scales has 3 values, must have {}", rows));
  EXPECT_EQ(failure([&](PartTensors& p) {
              p[q + ".codebook"] = f16_tensor({1, 1, 16, 1}, Values(16, 1.0f));
              p[q + ".codebook_groups"] = {{2}, {static_cast<float>(rows), static_cast<float>(cols - 1)}};
            }),
            fmt::format(": tensor blk.0.attn_q.codebook has 1 tables, must have 2: one for {} rows and {} columns",
                        rows, cols - 1));
  EXPECT_EQ(failure([&](PartTensors& p) {
              p[q + ".codebook"] = f16_tensor({2, 1, 16, 1}, Values(32, 1.0f));
              p[q + ".codebook_groups"] = {{2}, {static_cast<float>(rows), static_cast<float>(cols - 1)}};
              p[q + ".codebook_scales"] = {{rows}, Values(static_cast<size_t>(rows), 1e7f)};
            }),
            ": tensor blk.0.attn_q.codebook stands for weights of up to 1e+07, may have at most 8.32e+06");
  PartTensors embedding, plain;
  add_codebook(*files, "token_embd", {}, embedding, plain);
  EXPECT_EQ(failure([&](PartTensors& p) { p = embedding; }),
            ": token_embd.weight: an embedding table cannot have weight parts");
}

}  // namespace
}  // namespace millrace
