// Look-up in a KernelTable, and the order in which the instruction-set levels fill it.
#include "kernels/kernel_table.h"

#include <algorithm>

#include "kernels/families.h"
#include "kernels/ops.h"

namespace millrace {
namespace {

// Replaces the entry whose key field equals the new one's, or appends.
template <typename Entry>
void set_entry(std::vector<Entry>& entries, const Entry& entry, const Format* Entry::*key) {
  if (entry.*key == nullptr) return;
  auto it = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.*key == entry.*key; });
  if (it != entries.end()) {
    *it = entry;
  } else {
    entries.push_back(entry);
  }
}

template <typename Entry>
const Entry* find_entry(const std::vector<Entry>& entries, const Format* format, const Format* Entry::*key) {
  for (const Entry& entry : entries) {
    if (entry.*key == format) return &entry;
  }
  return nullptr;
}

}  // namespace

const MatmulKernel* KernelTable::find_matmul(const Format* format) const {
  return find_entry(matmul, format, &MatmulKernel::format);
}

const AttentionKernel* KernelTable::find_attention(const Format* kv_format) const {
  return find_entry(attention, kv_format, &AttentionKernel::kv_format);
}

const RowCodec* KernelTable::find_codec(const Format* format) const {
  return find_entry(codecs, format, &RowCodec::format);
}

void set_matmul(KernelTable& table, const MatmulKernel& kernel) {
  set_entry(table.matmul, kernel, &MatmulKernel::format);
}

void set_attention(KernelTable& table, const AttentionKernel& kernel) {
  set_entry(table.attention, kernel, &AttentionKernel::kv_format);
}

void set_codec(KernelTable& table, const RowCodec& codec) { set_entry(table.codecs, codec, &RowCodec::format); }

KernelTable make_kernel_table(Isa isa) {
  KernelTable table;
  table.isa = isa;
  add_activation_ref(table);
  add_matmul_float_ref(table);
  add_matmul_quant_ref(table);
  add_ops_ref(table);
#if defined(__x86_64__)
  if (isa >= Isa::avx2) {
    add_activation_avx2(table);
    add_matmul_float_avx2(table);
    add_matmul_quant_avx2(table);
    add_ops_avx2(table);
  }
  if (isa >= Isa::avx512) {
    add_matmul_float_avx512(table);
    add_matmul_quant_avx512(table);
    add_ops_avx512(table);
  }
#endif
  return table;
}

}  // namespace millrace
