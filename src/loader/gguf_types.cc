#include "loader/gguf_types.h"

#include <iterator>

#include "formats/affine_group.h"
#include "formats/e8p_residual.h"
#include "formats/four_of_eight.h"

namespace millrace {
namespace {

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {4, "Q4_2", 0, 0},        {5, "Q4_3", 0, 0},        {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},         {25, "I16", 1, 2},        {26, "I32", 1, 4},        {27, "I64", 1, 8},
    {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {31, "Q4_0_4_4", 0, 0},
    {32, "Q4_0_4_8", 0, 0},   {33, "Q4_0_8_8", 0, 0},   {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},
    {36, "IQ4_NL_4_4", 0, 0}, {37, "IQ4_NL_4_8", 0, 0}, {38, "IQ4_NL_8_8", 0, 0}, {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};

// Of millrace alone.
constexpr GgufType kOwnTypes[] = {
    {kGgufE8p, "E8P", kE8pBlockValues, kE8pBlockBytes},         {kGgufE8p3, "E8P_3", kE8pBlockValues, kE8p3BlockBytes},
    {kGgufE8p4, "E8P_4", kE8pBlockValues, kE8p4BlockBytes},     {kGgufQ2G64, "Q2_G64", 64, AffineGroup<2, 64>::kBytes},
    {kGgufQ2G128, "Q2_G128", 128, AffineGroup<2, 128>::kBytes}, {kGgufQ3G64, "Q3_G64", 64, AffineGroup<3, 64>::kBytes},
    {kGgufQ3G128, "Q3_G128", 128, AffineGroup<3, 128>::kBytes}, {kGgufQ8Of8, "Q8_4OF8", 32, FourOfEight<8>::kBytes},
    {kGgufQ4Of8, "Q4_4OF8", 32, FourOfEight<4>::kBytes}};

constexpr bool ids_are_indices() {
  uint32_t next = 0;
  for (const GgufType& type : kTypes) {
    if (type.id != next++) return false;
  }
  return true;
}
static_assert(ids_are_indices());

}  // namespace

const GgufType* find_gguf_type(uint32_t id) {
  for (const GgufType& type : kOwnTypes)
    if (type.id == id) return &type;
  return id < std::size(kTypes) ? &kTypes[id] : nullptr;
}

int gguf_value_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::i8:
    case GgufValueType::boolean: return 1;
    case GgufValueType::u16:
    case GgufValueType::i16: return 2;
    case GgufValueType::u32:
    case GgufValueType::i32:
    case GgufValueType::f32: return 4;
    case GgufValueType::u64:
    case GgufValueType::i64:
    case GgufValueType::f64: return 8;
    default: return 0;
  }
}

int gguf_value_least_bytes(GgufValueType type) {
  if (type == GgufValueType::string) return 8;
  if (type == GgufValueType::array) return 12;
  return gguf_value_bytes(type);
}

}  // namespace millrace
