// Matrices with a codebook, in every kernel table of this machine: products are those of the decoded weights, the
// same bits in every table, for one token or many, any split of the rows and any number of threads; and the tables of
// a part of a matrix are those of its rows.
#include "tensor/codebook.h"

#include "conformance/matmul_case.h"

namespace millrace {
namespace {

using namespace testing;  // matmul_case.h

struct BookCase {
  const char* name;
  int bits, dim, books;
  int64_t rows_per_table, cols_per_table;  // 0: all
};

constexpr BookCase kBookCases[] = {
    {"4 bits, a table a row", 4, 1, 1, 1, 0},
    {"3 bits, a table a row", 3, 1, 1, 1, 0},
    {"2 bits, a table for 3 rows", 2, 1, 1, 3, 0},
    {"4 bits, tables of 24 columns", 4, 1, 1, 1, 24},
    {"5 bits", 5, 1, 1, 2, 0},
    {"pairs of 6 bits", 6, 2, 1, 4, 16},
    {"eights, two books of 8 bits", 8, 8, 2, 0, 0},
    {"fours of 12 bits", 12, 4, 1, 0, 0},
    {"three books of 1 bit", 1, 1, 3, 1, 0},
};

struct CodebookCase {
  Weight weight;
  std::vector<uint8_t> indices;
  std::vector<float> decoded;  // [rows, cols]
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
  for (float value : normal_values(tables * book->table_values(), 3)) book->entries.push_back(f32_to_f16(value));
  c.indices.resize(static_cast<size_t>(rows * book->row_bytes(cols)));
  std::mt19937 random(5);
  std::vector<uint32_t> drawn;
  const int64_t groups = cols / book->dim;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < groups * book->books; ++i) {
      drawn.push_back(random() % (1u << book->bits));
      set_codebook_index(*book, c.indices.data() + r * book->row_bytes(cols), i, drawn.back());
    }
  for (int64_t r = 0; r < rows; ++r)  // the definition, without the functions under test
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t table = r / book->rows_per_table * book->tables_per_row + col / book->cols_per_table;
      float sum = 0;
      for (int64_t m = 0; m < book->books; ++m) {
        const uint32_t index = drawn[static_cast<size_t>((r * groups + col / book->dim) * book->books + m)];
        const int64_t entry = ((table * book->books + m) << book->bits) + index;
        sum += f16_to_f32(book->entries[static_cast<size_t>(entry * book->dim + col % book->dim)]);
      }
      c.decoded.push_back(sum);
    }
  c.weight.name = kind.name;
  c.weight.format = &codebook_indices();
  c.weight.rows = rows;
  c.weight.cols = cols;
  c.weight.data = c.indices.data();
  c.weight.codebook = std::move(book);
  return c;
}

constexpr Shape kCodedShapes[] = {{1, 8}, {3, 40}, {8, 64}, {17, 200}, {13, 1160}};

TEST(CodebookConformance, ProductsAreThoseOfTheDecodedWeights) {
  ThreadPool pool(1);
  constexpr int64_t kTokens = 8;  // past a tile of every kernel
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
        for (int64_t t = 0; t < kTokens; ++t) {
          const std::vector<float> one(x.begin() + t * shape.cols, x.begin() + (t + 1) * shape.cols);
          const std::vector<float> alone = multiply(c.weight, table, pool, one, 1);
          for (int64_t r = 0; r < shape.rows; ++r) {
            double sum = 0, magnitude = 0;
            for (int64_t k = 0; k < shape.cols; ++k) {
              const double product = double{c.decoded[static_cast<size_t>(r * shape.cols + k)]} * one[k];
              sum += product;
              magnitude += std::abs(product);
            }
            const float found = y[static_cast<size_t>(t * shape.rows + r)];
            ASSERT_NEAR(found, sum, kFloatBound * magnitude + 1e-30) << kind.name << " " << isa_name(table.isa);
            ASSERT_EQ(std::bit_cast<uint32_t>(found), std::bit_cast<uint32_t>(alone[static_cast<size_t>(r)]))
                << kind.name << " " << isa_name(table.isa) << ": a token alone";
          }
        }
      }
    }
}

TEST(CodebookConformance, NeitherThreadsNorRowRangesChangeABit) {
  ThreadPool one(1), three(3);
  constexpr int64_t kTokens = 9;
  for (const BookCase& kind : {kBookCases[0], kBookCases[6]})
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

TEST(CodebookConformance, SmallTablesHaveAKernelOfTheirOwn) {
  for (const KernelTable& table : tables()) {
    const CodebookCase small = coded_case(kBookCases[1], 8, 64), pairs = coded_case(kBookCases[5], 8, 64);
    ASSERT_NE(table.find_codebook(*pairs.weight.codebook), nullptr);
    EXPECT_FALSE(table.find_codebook(*pairs.weight.codebook)->packs_tables);
    if (table.isa.has(Feature::avx2)) {
      EXPECT_TRUE(table.find_codebook(*small.weight.codebook)->packs_tables) << isa_name(table.isa);
    }
  }
}

}  // namespace
}  // namespace millrace
