// Look-up in a KernelTable, and the order in which the kernels of each feature fill it.
#include "kernels/kernel_table.h"

#include <algorithm>
#include <array>

#include "kernels/families.h"
#include "kernels/ops.h"
#include "kernels/quant_packing.h"
#include "kernels/vector/matmul_pack.h"
#include "kernels/x86/bf16_products.h"

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

// The versions of every kernel family in addition to the reference, from fewer features to more: a later one replaces
// those before it. A null `add` means that the file of an earlier row adds this version.
struct KernelVersion {
  std::string_view family;
  Feature needs;
  void (*add)(KernelTable& table);
  bool (*slower)() = nullptr;  // returns true if this processor runs an earlier row faster
  // Features with which later versions replace every kernel of this one, so that it is skipped. Builds for one
  // processor leave its file out (cmake/MillraceNativeKernels.cmake has the same list).
  Isa superseded_by = Isa::ref;
};

bool is_superseded(const KernelVersion& version, Isa isa) {
  return version.superseded_by != Isa::ref && isa.includes(version.superseded_by);
}

#if defined(__x86_64__)
void add_attention_of_bytes(KernelTable& table) {
  if (!table.isa.has(Feature::avx512_vnni)) return;
  add_attention_levels_avx512vnnibf16(table);
  add_attention_rows_avx512vnnibf16(table);
}

constexpr Isa k512 = Isa::avx2.with(Feature::avx512);
constexpr Isa kVnni512 = k512.with(Feature::avx512_vnni);

constexpr KernelVersion kVersions[] = {
    {"quantized weights", Feature::avx2, add_matmul_quant_avx2, nullptr, kVnni512},
    {"quantized weights", Feature::avx_vnni, add_matmul_quant_avxvnni, nullptr, kVnni512},
    {"Q8_0 weights, small codebooks", Feature::avx2, nullptr},
    {"Q8_0 weights, small codebooks", Feature::avx_vnni, nullptr},
    {"codebooks of eight weights", Feature::avx2, nullptr},
    {"codebooks of eight weights", Feature::avx_vnni, nullptr},
#if defined(MILLRACE_VNNI_INT8)
    {"Q8_0 weights, small codebooks", Feature::avx_vnni_int8, add_matmul_quant_avxvnniint8},
    {"codebooks of eight weights", Feature::avx_vnni_int8, nullptr},
#endif
    {"quantized weights", Feature::avx512_vnni, add_matmul_quant_avx512vnni},
    {"quantized weights", Feature::amx_bf16, add_matmul_quant_amxbf16},  // but Q8_0 and Q2_K
    {"packing of quantized weights", Feature::avx512, nullptr},          // make_kernel_table()
    {"Q8_0 weights, small codebooks", Feature::avx512_vnni, nullptr},
    {"codebooks of eight weights", Feature::avx512_vnni, nullptr},
    {"codebooks of eight weights", Feature::avx512_vbmi, add_matmul_codewords_avx512vbmi},
    {"Q8_0 weights, small codebooks", Feature::amx_int8, add_matmul_quant_amxint8},
    {"codebooks of eight weights", Feature::amx_int8, nullptr},
    {"rounding of activations", Feature::avx2, add_activation_avx2},
    {"F32 and F16 weights", Feature::avx2, add_matmul_float_avx2},      // and BF16, F8
    {"F32 and F16 weights", Feature::avx512, add_matmul_float_avx512},  // and BF16
    {"BF16 weights", Feature::avx2, nullptr},
    {"BF16 weights", Feature::avx512, nullptr},
    {"BF16 weights", Feature::avx512_bf16, add_matmul_bf16_avx512bf16, bf16_by_fma},
    {"BF16 weights", Feature::amx_bf16, add_matmul_bf16_amxbf16},
    {"F8 weights", Feature::avx2, nullptr},
    {"F8 weights", Feature::avx512_vbmi, add_matmul_f8_avx512vbmi},
    {"attention", Feature::avx2, add_attention_avx2, nullptr, k512},
    {"attention", Feature::avx512, add_attention_avx512},
    {"attention", Feature::avx512_bf16, add_attention_avx512bf16},
    {"attention", Feature::avx512_bf16, add_attention_of_bytes},
    {"attention", Feature::amx_bf16, add_attention_amxbf16},
    {"norms, RoPE, softmax and the rest", Feature::avx2, add_ops_avx2},
    {"norms, RoPE, softmax and the rest", Feature::avx512, add_ops_avx512},
};
#elif defined(__aarch64__)
constexpr KernelVersion kVersions[] = {
    {"quantized weights", Feature::neon, add_matmul_quant_neon},  // and codebooks of int8
    {"quantized weights", Feature::dotprod, add_matmul_quant_dotprod},
    {"quantized weights", Feature::i8mm, add_matmul_quant_i8mm},
    {"rounding of activations", Feature::neon, add_activation_neon},
    {"F32, F16 and F8 weights", Feature::neon, add_matmul_float_neon},  // and BF16
    {"BF16 weights", Feature::neon, nullptr},
    {"BF16 weights", Feature::arm_bf16, add_matmul_bf16_armbf16},
    {"attention", Feature::neon, add_attention_neon},
    {"norms, RoPE, softmax and the rest", Feature::neon, add_ops_neon},
};
#else
constexpr std::array<KernelVersion, 0> kVersions;
#endif

bool is_slower(const KernelVersion& version) { return version.slower && version.slower(); }

}  // namespace

const MatmulKernel* KernelTable::find_matmul(const Format* format) const {
  return find_entry(matmul, format, &MatmulKernel::format);
}

const MatmulKernel* KernelTable::find_codebook(const Codebook& book) const {
  const auto found = std::find_if(codebooks.rbegin(), codebooks.rend(),
                                  [&](const MatmulKernel& kernel) { return kernel.takes(book); });
  return found == codebooks.rend() ? nullptr : &*found;
}

const AttentionKernel* KernelTable::find_attention(const Format* kv_format) const {
  return find_entry(attention, kv_format, &AttentionKernel::kv_format);
}

const AttentionKernel* KernelTable::find_attention(const Format* keys, const Format* values) const {
  if (keys == values)
    if (const AttentionKernel* kernel = find_attention(keys)) return kernel;
  for (const AttentionKernel& kernel : mixed_attention)
    if (kernel.kv_format == keys && kernel.value_format == values) return &kernel;
  return &any_attention;
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

void set_mixed_attention(KernelTable& table, const AttentionKernel& kernel) {
  if (!kernel.kv_format || !kernel.value_format) return;
  for (AttentionKernel& one : table.mixed_attention)
    if (one.kv_format == kernel.kv_format && one.value_format == kernel.value_format) {
      one = kernel;
      return;
    }
  table.mixed_attention.push_back(kernel);
}

void set_codec(KernelTable& table, const RowCodec& codec) { set_entry(table.codecs, codec, &RowCodec::format); }

void set_codebook(KernelTable& table, const MatmulKernel& kernel) {
  for (MatmulKernel& one : table.codebooks)
    if (std::string_view(one.layout) == kernel.layout) {
      one = kernel;
      return;
    }
  table.codebooks.push_back(kernel);
}

KernelTable make_kernel_table(Isa isa, Superseded superseded) {
  KernelTable table;
  table.isa = isa;
  add_activation_ref(table);
  add_matmul_float_ref(table);
  add_matmul_quant_ref(table);
  add_matmul_codebook_ref(table);
  add_ops_ref(table);
  for (const KernelVersion& version : kVersions)
    if (version.add && isa.has(version.needs) && !is_slower(version) &&
        (superseded == Superseded::added || !is_superseded(version, isa)))
      version.add(table);
#if defined(__x86_64__) || defined(__aarch64__)
  add_carried_kernels(table);
#endif
#if defined(__x86_64__)
  if (isa.has(Feature::avx512)) add_quant_packing_avx512(table);  // of all of the above
  if (isa.has(Feature::avx512_vnni)) add_stored_products_avx512vnni(table);
#endif
  return table;
}

std::vector<KernelChoice> kernel_choices(Isa isa) {
  std::vector<KernelChoice> choices;
  for (const KernelVersion& version : kVersions) {
    if (is_slower(version)) continue;
    auto it = std::find_if(choices.begin(), choices.end(),
                           [&](const KernelChoice& choice) { return choice.family == version.family; });
    if (it == choices.end()) it = choices.insert(it, {std::string(version.family), "ref", {}});
    if (isa.has(version.needs)) {
      *it = {it->family, std::string(feature_name(version.needs)), {}};
    } else {
      it->missing.emplace_back(feature_name(version.needs));
    }
  }
  return choices;
}

}  // namespace millrace
