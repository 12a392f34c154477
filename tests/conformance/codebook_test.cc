// Matrices with a codebook, in every kernel table of this machine: products are those of the weights as they are
// rounded (tables of at most 16 weights and words of eight to 8 bits, others to Q8_0) and of the rounded inputs, the
// same bits in every table, for one token or many, any split of the rows and any number of threads; and the tables of a
// part of a matrix are those of its rows.
#include "tensor/codebook.h"

#include <algorithm>
#include <cmath>

#include "conformance/matmul_case.h"
#include "kernels/codebook_products.h"

namespace millrace {
namespace {

using namespace testing;  // matmul_case.h

struct BookCase {
  const char* name;
  int bits, dim, books;
  int64_t rows_per_table, cols_per_table;  // 0: all
  bool row_scales = false;
  bool signs = false;  // entries are 1 and -1: sums of products as large as int8 allows
};

constexpr BookCase kBookCases[] = {
    {"4 bits, a table a row", 4, 1, 1, 1, 0},
    {"3 bits, a table a row", 3, 1, 1, 1, 0},
    {"2 bits, a table for 3 rows", 2, 1, 1, 3, 0},
    {"1 bit, a table for all rows", 1, 1, 1, 0, 0},
    {"4 bits, tables of 24 columns", 4, 1, 1, 1, 24},
    {"5 bits", 5, 1, 1, 2, 0},
    {"pairs of 6 bits", 6, 2, 1, 4, 16},
    {"eights, two books of 8 bits", 8, 8, 2, 0, 0},
    {"fours of 12 bits", 12, 4, 1, 0, 0},
    {"three books of 1 bit", 1, 1, 3, 1, 0},
    {"eights, two books of 8 bits, scales", 8, 8, 2, 0, 0, true},
    {"eights of 16 bits, scales", 16, 8, 1, 0, 0, true},
    {"eights, two books of 8 bits, tables of 16 columns", 8, 8, 2, 0, 16},
    {"4 bits, a table a row, scales", 4, 1, 1, 1, 0, true},
    {"eights, two books of 8 bits, a table for 5 rows", 8, 8, 2, 5, 0, true},
    {"eights of 16 bits, tables of 256 columns", 16, 8, 1, 0, 256},
    {"eights, a book of 8 bits, scales", 8, 8, 1, 0, 0, true},
    {"eights, a book of 8 bits, signs", 8, 8, 1, 0, 0, false, true},
    {"eights, three books of 8 bits, signs", 8, 8, 3, 0, 0, false, true},
    {"eights, four books of 8 bits, scales", 8, 8, 4, 0, 0, true},
    {"eights, five books of 8 bits, signs", 8, 8, 5, 0, 0, false, true},
    {"eights, two books of 14 bits, scales", 14, 8, 2, 0, 0, true},
    {"eights of 15 bits", 15, 8, 1, 0, 0},
    {"2 bits, tables of 128 columns", 2, 1, 1, 1, 128},
    {"3 bits, tables of 2 rows and 96 columns, scales", 3, 1, 1, 2, 96, true},
    {"4 bits, tables of 32 columns", 4, 1, 1, 1, 32},
    {"1 bit, tables of 3 rows and 64 columns", 1, 1, 1, 3, 64},
    {"2 bits, tables of 32 columns, signs", 2, 1, 1, 1, 32, false, true},
    {"4 bits, tables of 160 columns", 4, 1, 1, 1, 160},
    {"pairs of 8 bits, a table for all rows", 8, 2, 1, 0, 0},
};

struct CodebookCase {
  Weight weight;
  std::vector<uint8_t> indices;
  std::vector<float> decoded;  // [rows, cols]: weights as they are multiplied
};

CodebookCase coded_case(const BookCase& kind, int64_t rows, int64_t cols) {
  CodebookCase c;
  auto book = std::make_shared<Codebook>();
  book->bits = kind.bits;
  book->dim = kind.dim;
  book->books = kind.books;
  book->rows_per_table = kind.rows_per_table > 0 ? kind.rows_per_table : rows;
  book->cols_per_table = kind.cols_per_table > 0 ? kind.cols_per_table : cols;
  book->tables_per_row = (cols + book->cols_per_table - 1) / book->cols_per_table;
  const int64_t tables = (rows + book->rows_per_table - 1) / book->rows_per_table * book->tables_per_row;
  for (float value : normal_values(tables * book->table_values(), 3))
    book->entries.push_back(f32_to_f16(kind.signs ? std::copysign(1.0f, value) : value));
  round_codewords(*book);
  if (kind.row_scales) book->row_scales = normal_values(rows, 4);
  const auto scale_of = [&](int64_t row) {
    return kind.row_scales ? book->row_scales[static_cast<size_t>(row)] : 1.0f;
  };
  c.indices.resize(static_cast<size_t>(rows * book->row_bytes(cols)));
  std::mt19937 random(5);
  std::vector<uint32_t> drawn;
  const int64_t groups = cols / book->dim;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < groups * book->books; ++i) {
      drawn.push_back(random() % (1u << book->bits));
      set_codebook_index(*book, c.indices.data() + r * book->row_bytes(cols), i, drawn.back());
    }
  const bool table16 = codebook_is_table16(*book), words = codebook_is_codewords(*book);
  c.weight.format = &codebook_format(*book);
  for (int64_t r = 0; r < rows; ++r) {  // the definition, without the functions under test
    for (int64_t col = 0; col < cols; ++col) {
      if (table16) {
        const Table16 rounded = codebook_table16(*book, r, col / book->cols_per_table);
        c.decoded.push_back(rounded.scale *
                            static_cast<float>(rounded.level[drawn[static_cast<size_t>(r * cols + col)]]));
        continue;
      }
      const int64_t table = r / book->rows_per_table * book->tables_per_row + col / book->cols_per_table;
      float sum = 0;
      for (int64_t m = 0; m < book->books; ++m) {
        const uint32_t index = drawn[static_cast<size_t>((r * groups + col / book->dim) * book->books + m)];
        const int64_t entry = ((table * book->books + m) << book->bits) + index;
        const auto at = static_cast<size_t>(entry * book->dim + col % book->dim);
        sum += words ? book->word_scale * static_cast<float>(book->words[at]) : f16_to_f32(book->entries[at]);
      }
      c.decoded.push_back(sum * scale_of(r));
    }
    if (!c.weight.format->encode) continue;
    std::vector<float> row(c.decoded.end() - cols, c.decoded.end());
    row.resize(static_cast<size_t>((cols + 31) / 32 * 32));
    std::vector<uint8_t> encoded(static_cast<size_t>(c.weight.format->row_bytes(std::ssize(row))));
    c.weight.format->encode(row.data(), encoded.data(), std::ssize(row));
    c.weight.format->decode(encoded.data(), row.data(), std::ssize(row));
    std::copy_n(row.begin(), cols, c.decoded.end() - cols);
  }
  c.weight.name = kind.name;
  c.weight.rows = rows;
  c.weight.cols = cols;
  c.weight.data = c.indices.data();
  c.weight.codebook = std::move(book);
  return c;
}

constexpr Shape kCodedShapes[] = {{1, 8}, {3, 40}, {8, 64}, {17, 200}, {35, 224}, {13, 1160}, {40, 2136}};

// The inputs as a kernel of this format reads them.
std::vector<float> rounded_inputs(const KernelTable& table, Activation kind, const std::vector<float>& x) {
  AlignedBuffer row = scratch_for(kind, 1, std::ssize(x));
  table.encode_activation(kind, x.data(), std::ssize(x), row.data());
  return decode_activation(kind, row.data(), std::ssize(x));
}

TEST(CodebookConformance, ProductsAreThoseOfTheDecodedWeights) {
  ThreadPool pool(1);
  constexpr int64_t kTokens = 53;  // past a tile of every kernel
  for (const BookCase& kind : kBookCases)
    for (const Shape& shape : kCodedShapes) {
      CodebookCase c = coded_case(kind, shape.rows, shape.cols);
      const std::vector<float> x = normal_values(kTokens * shape.cols, 8);
      std::vector<float> first;
      for (const KernelTable& table : tables()) {
        ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
        const std::vector<float> y = multiply(c.weight, table, pool, x, kTokens);
        if (first.empty()) first = y;
        EXPECT_TRUE(same_bits(y, first)) << kind.name << " " << isa_name(table.isa) << " " << shape.rows << " x "
                                         << shape.cols << ": bits differ from " << isa_name(tables().front().isa);
        for (int64_t t = 0; t < kTokens; t += 4) {
          const std::vector<float> one(x.begin() + t * shape.cols, x.begin() + (t + 1) * shape.cols);
          const std::vector<float> alone = multiply(c.weight, table, pool, one, 1);
          const std::vector<float> input = rounded_inputs(table, c.weight.format->activation, one);
          for (int64_t r = 0; r < shape.rows; ++r) {
            double sum = 0, magnitude = 0;
            for (int64_t k = 0; k < shape.cols; ++k) {
              const double product = double{c.decoded[static_cast<size_t>(r * shape.cols + k)]} * input[k];
              sum += product;
              magnitude += std::abs(product);
            }
            const float found = y[static_cast<size_t>(t * shape.rows + r)];
            ASSERT_NEAR(found, sum, kQuantBound * magnitude + 1e-30) << kind.name << " " << isa_name(table.isa);
            ASSERT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(alone[static_cast<size_t>(r)]))
                << kind.name << " " << isa_name(table.isa) << ": a token alone";
          }
        }
      }
    }
}

TEST(CodebookConformance, NeitherThreadsNorRowRangesChangeABit) {
  ThreadPool one(1), three(3);
  constexpr int64_t kTokens = 133;  // past those from which outputs bypass the caches
  for (const BookCase& kind : {kBookCases[0], kBookCases[1], kBookCases[2], kBookCases[7], kBookCases[10],
                               kBookCases[11], kBookCases[24], kBookCases[25], kBookCases[27], kBookCases[29]})
    for (const KernelTable& table : tables()) {
      CodebookCase c = coded_case(kind, 120, 96);
      ASSERT_TRUE(pack_weight(c.weight, table, three).ok());
      const std::vector<float> x = normal_values(kTokens * 96, 4);
      const std::vector<float> y = multiply(c.weight, table, three, x, kTokens);
      EXPECT_TRUE(same_bits(y, multiply(c.weight, table, one, x, kTokens)));
      const int64_t tile = c.weight.kernel->row_tile;
      EXPECT_EQ(packed_bytes(c.weight, 120), c.weight.packed.bytes());
      std::vector<uint8_t> parts(static_cast<size_t>(c.weight.packed.bytes()));
      pack_rows(c.weight, 0, tile, parts.data());
      pack_rows(c.weight, tile, 120, parts.data());
      EXPECT_EQ(std::memcmp(parts.data(), c.weight.packed.data(), parts.size()), 0) << isa_name(table.isa);
    }
}

TEST(CodebookConformance, FewAndManyTokensAgree) {
  ThreadPool pool(1);
  constexpr int64_t kMax = 70;
  for (const BookCase& kind : {kBookCases[0], kBookCases[1], kBookCases[2], kBookCases[10], kBookCases[11],
                               kBookCases[18], kBookCases[23], kBookCases[24], kBookCases[25]}) {
    CodebookCase c = coded_case(kind, 51, 168);
    const std::vector<float> x = normal_values(kMax * 168, 8);
    for (const KernelTable& table : tables()) {
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      const std::vector<float> all = multiply(c.weight, table, pool, x, kMax);
      for (int64_t tokens = 1; tokens < kMax; tokens += tokens < 12 ? 1 : 9)
        EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, {x.begin(), x.begin() + tokens * 168}, tokens),
                              {all.begin(), all.begin() + tokens * 51}))
            << kind.name << " " << isa_name(table.isa) << " " << tokens;
    }
  }
}

TEST(CodebookConformance, SmallTablesHaveAKernelOfTheirOwn) {
  ThreadPool pool(1);
  for (const KernelTable& table : tables()) {
    for (const BookCase& kind : {kBookCases[0], kBookCases[1], kBookCases[2], kBookCases[23], kBookCases[25]}) {
      CodebookCase small = coded_case(kind, 64, 256);
      ASSERT_TRUE(pack_weight(small.weight, table, pool).ok());
      const MatmulKernel& kernel = *small.weight.kernel;
      EXPECT_EQ(kernel.format, &table16_indices()) << isa_name(table.isa);
      const int64_t one = kernel.row_tile == 1 ? 20 : (1 << kind.bits) + 4;  // the reference pads tables
      const int64_t tables = kind.cols_per_table > 0 ? 256 / kind.cols_per_table : 1;
      EXPECT_EQ(small.weight.packed.bytes(), 64 * (256 * kind.bits / 8 + tables * one))
          << isa_name(table.isa) << " " << kind.name;
    }
  }
}

TEST(CodebookConformance, OtherCodebooksAreMultipliedAsQ8_0) {
  ThreadPool pool(1);
  constexpr int64_t kTokens = 5;
  const Format* q8_0 = find_format("q8_0");
  const std::vector<float> x = normal_values(kTokens * 96, 8);
  for (const int kind : {4, 5, 6, 8, 9, 12, 14, 29}) {
    CodebookCase c = coded_case(kBookCases[kind], 40, 96);
    EXPECT_EQ(c.weight.format, q8_0) << kBookCases[kind].name;
    std::vector<uint8_t> stored(static_cast<size_t>(40 * q8_0->row_bytes(96)));
    q8_0->encode(c.decoded.data(), stored.data(), std::ssize(c.decoded));
    Weight plain;
    plain.name = "plain";
    plain.format = q8_0;
    plain.rows = 40;
    plain.cols = 96;
    plain.data = stored.data();
    for (const KernelTable& table : tables()) {
      EXPECT_EQ(table.find_codebook(*c.weight.codebook), nullptr);
      ASSERT_TRUE(pack_weight(c.weight, table, pool).ok());
      ASSERT_TRUE(pack_weight(plain, table, pool).ok());
      EXPECT_EQ(c.weight.kernel, plain.kernel);
      ASSERT_EQ(c.weight.packed.bytes(), plain.packed.bytes());
      EXPECT_TRUE(same_bits(multiply(c.weight, table, pool, x, kTokens), multiply(plain, table, pool, x, kTokens)))
          << kBookCases[kind].name << " " << isa_name(table.isa);
    }
  }
}

TEST(CodebookConformance, WordsOfEightHaveAKernelOfTheirOwn) {
  ThreadPool pool(1);
  for (const KernelTable& table : tables()) {
    CodebookCase two = coded_case(kBookCases[10], 64, 256), one = coded_case(kBookCases[11], 64, 256);
    for (CodebookCase* c : {&two, &one}) {
      ASSERT_TRUE(pack_weight(c->weight, table, pool).ok());
      EXPECT_EQ(c->weight.kernel->format, &codeword_indices()) << isa_name(table.isa);
      EXPECT_EQ(c->weight.packed.bytes(), 64 * (256 / 8 * 2 + 4)) << isa_name(table.isa);
    }
    const CodebookCase tables_of_rows = coded_case(kBookCases[14], 40, 64);
    EXPECT_EQ(table.find_codebook(*tables_of_rows.weight.codebook), nullptr);
  }
}

Codebook eights(int bits, int books, const std::vector<float>& entries) {
  Codebook book{.bits = bits, .dim = 8, .books = books, .rows_per_table = 4, .cols_per_table = 64};
  for (float entry : entries) book.entries.push_back(f32_to_f16(entry));
  return book;
}

TEST(CodebookConformance, WordsAreRoundedWithinInt8) {
  for (int books : {1, 2, 3, 4}) {
    Codebook book = eights(8, books, normal_values(int64_t{books} * 256 * 8, static_cast<uint32_t>(books)));
    round_codewords(book);
    ASSERT_TRUE(codebook_is_codewords(book)) << books;
    ASSERT_EQ(book.words.size(), book.entries.size());
    int most = 0;
    for (int d = 0; d < 8; ++d) {
      int sum = 0;
      for (int m = 0; m < books; ++m) {
        int largest = 0;
        for (int k = 0; k < 256; ++k) largest = std::max(largest, std::abs(int{book.words[(m * 256 + k) * 8 + d]}));
        sum += largest;
      }
      most = std::max(most, sum);
    }
    EXPECT_LE(most, 127) << books;
    EXPECT_GE(most, 120) << books;
    for (size_t i = 0; i < book.words.size(); ++i)
      EXPECT_NEAR(f16_to_f32(book.entries[i]), book.word_scale * static_cast<float>(book.words[i]),
                  0.501 * book.word_scale);
  }
  Codebook whole = eights(8, 1, std::vector<float>(2048, 0.0f));  // levels of int8 stay as they are
  for (int i = 0; i < 2048; ++i)
    whole.entries[static_cast<size_t>(i)] = f32_to_f16(static_cast<float>(i % 255 - 127) / 64);
  round_codewords(whole);
  for (int i = 0; i < 2048; ++i) EXPECT_EQ(whole.words[static_cast<size_t>(i)], i % 255 - 127);
  Codebook zeros = eights(8, 2, std::vector<float>(4096, 0.0f));
  round_codewords(zeros);
  EXPECT_TRUE(codebook_is_codewords(zeros));
  EXPECT_EQ(zeros.word_scale, 0);
}

TEST(CodebookConformance, OutliersAndOtherShapesAreNotRounded) {
  std::vector<float> entries = normal_values(2048, 9);
  const auto words = [](Codebook book) {
    round_codewords(book);
    return codebook_is_codewords(book);
  };
  EXPECT_TRUE(words(eights(8, 1, entries)));
  Codebook of_rows = eights(8, 1, entries), fours = eights(8, 1, entries), twelve = eights(12, 1, entries);
  of_rows.entries.resize(4096);
  EXPECT_FALSE(words(of_rows)) << "two tables";
  fours.dim = 4;
  EXPECT_FALSE(words(fours));
  twelve.entries.resize(4096 * 8);
  EXPECT_FALSE(words(twelve));
  entries[5] = 30;
  EXPECT_FALSE(words(eights(8, 1, entries))) << "an entry of 30 times the others";
}

TEST(CodebookConformance, TablesAreRoundedTo8Bits) {
  const CodebookCase c = coded_case(kBookCases[1], 40, 8);
  for (int64_t r = 0; r < 40; ++r) {
    const Table16 table = codebook_table16(*c.weight.codebook, r, 0);
    double error = 0, at_127 = 0, largest = 0;
    for (int i = 0; i < 8; ++i)
      largest =
          std::max(largest, std::abs(double{f16_to_f32(c.weight.codebook->entries[static_cast<size_t>(r * 8 + i)])}));
    for (int i = 0; i < 8; ++i) {
      const double entry = f16_to_f32(c.weight.codebook->entries[static_cast<size_t>(r * 8 + i)]);
      EXPECT_LE(std::abs(entry - double{table.scale} * table.level[i]), 0.501 * table.scale) << r << " " << i;
      error += std::pow(entry - double{table.scale} * table.level[i], 2);
      at_127 += std::pow(entry - std::nearbyint(entry / largest * 127) * largest / 127, 2);
    }
    for (int i = 8; i < 16; ++i) EXPECT_EQ(table.level[i], 0);
    EXPECT_NEAR(
        std::abs(*std::ranges::max_element(table.level, {}, [](int8_t level) { return std::abs(int{level}); })) *
            table.scale,
        largest, 1e-6 * largest);
    EXPECT_LE(error, at_127 * 1.0001 + 1e-12) << r;
  }
  // Evenly spaced weights, zeros, one weight.
  Codebook even{.bits = 4, .cols_per_table = 8};
  for (int i = 0; i < 16; ++i) even.entries.push_back(f32_to_f16(static_cast<float>(i - 8) / 64));
  even.entries.resize(32);
  even.entries.resize(48, f32_to_f16(-0.75f));
  for (int i = 0; i < 16; ++i) {
    const auto value = [&](int64_t row) {
      const Table16 table = codebook_table16(even, row, 0);
      return table.scale * static_cast<float>(table.level[i]);
    };
    EXPECT_NEAR(value(0), static_cast<float>(i - 8) / 64, 1e-7) << i;
    EXPECT_EQ(value(1), 0);
    EXPECT_NEAR(value(2), -0.75f, 1e-7);
  }
}

}  // namespace
}  // namespace millrace
