// Quantized matmul with 8-bit tiles: Q8_0, and tables of at most 16 weights.
#if defined(__x86_64__)
#include "kernels/vector/matmul_weight_tables.h"
#include "kernels/x86/matmul_quant_tiles_amxbf16.h"

namespace millrace {
namespace {

// Reads the cells of a panel, a step each.
template <int kBits>
class Table16Reader {
 public:
  using V = VectorTiles;

  static int64_t panel_bytes(int64_t cols) { return table16_panel_bytes(kBits, cols); }
  static void run_few(const MatmulArgs& a) { table16_run_avx512vnni()(a); }

  Table16Reader(const uint8_t* panel, int64_t panel_bytes, int64_t first, int64_t cells)
      : cell_(panel + kTable16CellsAt + first * kCellBytes), ahead_(cell_, kCellBytes, cells, panel_bytes) {
    rows_.read(panel);
  }

  template <typename Step>
  void unpack(Step& to) {
    const uint8_t* lines = ahead_.next_cell();
    unroll<kCellBytes / 64>([&](auto line) __attribute__((always_inline)) { __builtin_prefetch(lines + line * 64); });
    unroll<4>([&](auto i) __attribute__((always_inline)) {
      constexpr int kGroup = i / 2, kPart = i % 2;
      V::I w[8];
      look_up_levels<V, kBits, kGroup, kPart>(cell_, rows_.tables[kPart], w);
      unroll<8>([&](auto j) __attribute__((always_inline)) { _mm512_store_si512(to.levels[kGroup][kPart][j], w[j]); });
      to.scale[kGroup][kPart] = rows_.scales[kPart];
    });
    cell_ += kCellBytes;
  }

 private:
  static constexpr int64_t kCellBytes = table16_cell_bytes(kBits);
  const uint8_t* cell_;
  CellsAhead ahead_;
  Table16Rows<V> rows_;
};

void run_table16_tiles(const MatmulArgs& a) {
  switch (table16_bits(*a.codebook)) {
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
  set_table16(table, run_table16_tiles, QuantTiles<kQ8_0, Table16Reader<4>>::kLeastTokens);
}

}  // namespace millrace
#endif
