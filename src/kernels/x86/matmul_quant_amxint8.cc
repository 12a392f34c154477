// Quantized matmul with 8-bit tiles: Q8_0, tables of at most 16 weights, and words of eight.
#if defined(__x86_64__)
#include "kernels/vector/matmul_codewords.h"
#include "kernels/x86/matmul_quant_tiles_amxbf16.h"

namespace millrace {
namespace {

// Reads the cells of a panel, a step each.
template <int kBits>
class Table16Reader {
 public:
  using V = VectorTiles;
  using Cells = Table16Cells<V, kBits>;

  static int64_t panel_bytes(const MatmulArgs& a) { return table16_panel(*a.codebook, a.cols).bytes(); }
  static void run_few(const MatmulArgs& a) { table16_run_avx512vnni()(a); }

  Table16Reader(const MatmulArgs& a, const uint8_t* panel, int64_t panel_bytes, int64_t first, int64_t cells)
      : Table16Reader(table16_panel(*a.codebook, a.cols), panel, panel_bytes, first, cells) {}

  template <typename Step>
  void unpack(Step& to) {
    const uint8_t* lines = ahead_.next_cell();
    for (int64_t at = 0; at < step_bytes_; at += 64) __builtin_prefetch(lines + at);
    const auto ignored = [](const uint8_t* /*table*/) {};
    const uint8_t* cell = cells_.next(ignored);
    unroll<4>([&](auto i) __attribute__((always_inline)) {
      constexpr int kGroup = i / 2, kPart = i % 2;
      if constexpr (i == 2) cells_.second(ignored);
      V::I w[8];
      look_up_levels<V, kBits, kGroup, kPart>(cell, cells_.rows, w);
      unroll<8>([&](auto j) __attribute__((always_inline)) { _mm512_store_si512(to.levels[kGroup][kPart][j], w[j]); });
      to.scale[kGroup][kPart] = cells_.rows.scales[kPart];
    });
  }

 private:
  Table16Reader(const Table16Panel& shape, const uint8_t* panel, int64_t panel_bytes, int64_t first, int64_t cells)
      : step_bytes_(shape.bytes() / shape.cells / 64 * 64),
        cells_(shape, panel, first),
        ahead_(panel + first * step_bytes_, step_bytes_, cells, panel_bytes) {}

  int64_t step_bytes_;  // of a cell and its share of the tables, for prefetching
  Cells cells_;
  CellsAhead ahead_;
};

template <typename Index>
class CodewordReader {
 public:
  using V = VectorTiles;

  static int64_t panel_bytes(const MatmulArgs& a) {
    const CodewordTables tables = codeword_tables(*a.codebook);
    return codeword_panel_bytes(tables.bits, tables.books, a.cols);
  }
  static void run_few(const MatmulArgs& a) { codewords_run_avx512vbmi()(a); }

  CodewordReader(const MatmulArgs& a, const uint8_t* panel, int64_t panel_bytes, int64_t first, int64_t cells)
      : tables_(codeword_tables(*a.codebook)),
        group_bytes_(4 * codeword_step_bytes(tables_.bits, tables_.books)),
        group_(panel + kCodewordCellsAt + first * 2 * group_bytes_),
        ahead_(group_, 2 * group_bytes_, cells, panel_bytes) {
    unroll<2>([&](auto part) __attribute__((always_inline)) { scales_[part] = V::load_f32(panel + part * 64); });
  }

  template <typename Step>
  void unpack(Step& to) {
    const uint8_t* lines = ahead_.next_cell();
    for (int64_t at = 0; at < 2 * group_bytes_; at += 64) __builtin_prefetch(lines + at);
    unroll<2>([&](auto group) __attribute__((always_inline)) {
      unroll<2>([&](auto part) __attribute__((always_inline)) {
        V::I w[8];
        look_up_words<V, Index, part * V::kLanes>(tables_, group_, w);
        unroll<8>([&](auto j) __attribute__((always_inline)) { _mm512_store_si512(to.levels[group][part][j], w[j]); });
        to.scale[group][part] = scales_[part];
      });
      group_ += group_bytes_;
    });
  }

 private:
  CodewordTables tables_;
  int64_t group_bytes_;
  const uint8_t* group_;
  CellsAhead ahead_;
  V::F scales_[2];
};

void run_codeword_tiles(const MatmulArgs& a) {
  if (a.tokens >= QuantTiles<kQ8_0, CodewordReader<uint16_t>>::kMinTokens) prefetch_words(codeword_tables(*a.codebook));
  if (codeword_index_bytes(codeword_tables(*a.codebook).bits) == 1)
    QuantTiles<kQ8_0, CodewordReader<uint8_t>>::run(a);
  else
    QuantTiles<kQ8_0, CodewordReader<uint16_t>>::run(a);
}

void run_table16_tiles(const MatmulArgs& a) {
  switch (table16_panel(*a.codebook, a.cols).bits) {
    case 2: return QuantTiles<kQ8_0, Table16Reader<2>>::run(a);
    case 3: return QuantTiles<kQ8_0, Table16Reader<3>>::run(a);
    default: return QuantTiles<kQ8_0, Table16Reader<4>>::run(a);
  }
}

}  // namespace

void add_matmul_quant_amxint8(KernelTable& table) {
  unroll<kQuantSourceCount>([&](auto i) {
    if constexpr (kQuantShapes[i].exact_scales()) add_quant_tiles<i>(table);
  });
  set_table16(table, run_table16_tiles, QuantTiles<kQ8_0, Table16Reader<4>>::kMinTokens);
  for (MatmulKernel& kernel : table.codebooks)
    if (kernel.format == &codeword_indices()) kernel.run = run_codeword_tiles;
}

}  // namespace millrace
#endif
