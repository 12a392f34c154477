// Packs with the vectors that every processor has (SSE2, NEON), and the kernels of formats that others carry.
#include "kernels/vector/matmul_pack.h"

#if defined(__x86_64__) || defined(__aarch64__)
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/vector/bytes16.h"
#include "kernels/vector/matmul_pack_quant.h"

namespace millrace {
namespace {

// Stored blocks of several groups as blocks of Q8_0, a panel at a time.
void pack_as_q8_0(const QuantSource& source, const Format& format, const uint8_t* stored, int64_t rows, int64_t cols,
                  int64_t row_begin, int64_t row_end, uint8_t* packed) {
  constexpr int64_t kBytes = 2 + 32;
  const int64_t row_bytes = cols / 32 * kBytes;
  std::vector<uint8_t> panel(static_cast<size_t>(std::min(kPanelRows, row_end - row_begin) * row_bytes));
  QuantBlock raw;
  for (int64_t first = row_begin; first < row_end; first += kPanelRows) {
    const int64_t count = std::min(kPanelRows, std::min(rows, row_end) - first);
    uint8_t* to = panel.data();
    for (int64_t row = first; row < first + count; ++row) {
      const uint8_t* block = stored + row * format.row_bytes(cols);
      for (int64_t b = 0; b < cols / format.block_values; ++b, block += format.block_bytes) {
        source.split(block, raw);
        for (int g = 0; g < source.shape.groups; ++g, to += kBytes) {
          std::memcpy(to, &raw.d, 2);
          for (int i = 0; i < 32; ++i) to[2 + i] = static_cast<uint8_t>(raw.level[g * 32 + i] - source.shape.offset);
        }
      }
    }
    const QuantCell cell = quant_cell(kQuantShapes[source.carrier]);
    pack_quant_panels(source.carrier, panel.data(), count, cols, 0, count,
                      packed + first / kPanelRows * quant_panel_bytes(cell, cols));
  }
}

}  // namespace

void pack_quant_panels(int source, const uint8_t* stored, int64_t rows, int64_t cols, int64_t row_begin,
                       int64_t row_end, uint8_t* packed, const BlockScales* scales) {
  if (const PackPanels pack = panels_packer<Bytes16>(source))
    return pack(source, stored, rows, cols, row_begin, row_end, packed, scales);
  pack_as_q8_0(*quant_source_at(source), *quant_format_at(source), stored, rows, cols, row_begin, row_end, packed);
}

namespace {

template <int kSource>
void pack_carried(const uint8_t* stored, const BlockScales*, int64_t rows, int64_t cols, int64_t row_begin,
                  int64_t row_end, uint8_t* packed) {
  pack_quant_panels(kSource, stored, rows, cols, row_begin, row_end, packed);
}

template <int kSource>
void add_carried_kernel(KernelTable& table) {
  const MatmulKernel* carrier = table.find_matmul(quant_format_at(quant_source_at(kSource)->carrier));
  if (carrier == nullptr || carrier->layout != std::string_view("cells32")) return;  // only the reference's
  MatmulKernel kernel = *carrier;
  kernel.format = quant_format_at(kSource);
  kernel.pack = pack_carried<kSource>;
  set_matmul(table, kernel);
}

}  // namespace

void add_carried_kernels(KernelTable& table) {
  [&table]<int... i>(std::integer_sequence<int, i...>) { (add_carried_kernel<kQuantSourceCount + i>(table), ...); }
  (std::make_integer_sequence<int, kCarriedCount>{});
}

}  // namespace millrace
#endif
