#include "base/cpu.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace millrace {
namespace {

TEST(Isa, NamesAndSetsCorrespond) {
  const std::pair<const char*, Isa> cases[] = {
      {"ref", Isa::ref},
      {"avx2", Isa::avx2},
      {"avx2+vnni", Isa::avx2.with(Feature::avx_vnni)},
      {"avx2+vnni+int8", Isa::avx2.with(Feature::avx_vnni).with(Feature::avx_vnni_int8)},
      {"avx512", Isa::avx512},
      {"avx512-bf16", Isa::avx512.without(Feature::avx512_bf16)},
      {"avx512-vnni-vbmi-bf16", Isa::avx2.with(Feature::avx512)},
      {"amx", Isa::amx},
      {"amx-int8", Isa::avx512.with(Feature::amx_bf16)},
      {"amx-bf16", Isa::avx512.with(Feature::amx_int8)},
      {"neon", Isa::neon},
      {"neon+dotprod", Isa::neon.with(Feature::dotprod)},
      {"neon+dotprod+i8mm+bf16", Isa::neon.with(Feature::dotprod).with(Feature::i8mm).with(Feature::arm_bf16)},
  };
  for (const auto& [name, isa] : cases) {
    EXPECT_EQ(isa_name(isa), name);
    const auto parsed = parse_isa(name);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->bits(), isa.bits()) << name;
  }
}

TEST(Isa, UnknownNames) {
  const auto message = [](const char* name) {
    const auto parsed = parse_isa(name);
    return parsed.ok() ? "accepted as " + isa_name(*parsed) : parsed.error().message;
  };
  EXPECT_EQ(message("sse"), "expected ref, avx2, avx512, amx or neon, got 'sse'");
  EXPECT_EQ(message(""), "expected ref, avx2, avx512, amx or neon, got ''");
  EXPECT_EQ(message("avx512-bf61"), "avx512: no feature 'bf61'; known: vnni, vbmi, bf16");
  EXPECT_EQ(message("avx2-"), "avx2: no feature ''; known: vnni, int8");
  EXPECT_EQ(message("amx-vnni"), "amx: no feature 'vnni'; known: int8, bf16");
  EXPECT_EQ(message("ref+vnni"), "ref: no feature 'vnni'; known: none");
}

TEST(Isa, Inclusion) {
  const Isa ice_lake = Isa::avx512.without(Feature::avx512_bf16);
  EXPECT_TRUE(Isa::avx512.includes(ice_lake));
  EXPECT_FALSE(ice_lake.includes(Isa::avx512));
  EXPECT_TRUE(ice_lake.includes(Isa::avx2));
  EXPECT_FALSE(ice_lake.includes(Isa::avx2.with(Feature::avx_vnni)));
  EXPECT_TRUE(Isa::ref.includes(Isa::ref));
  EXPECT_TRUE(Isa::amx.includes(Isa::avx512));
  EXPECT_FALSE(Isa::avx512.includes(Isa::amx));  // avx512 is what it was before there was AMX
}

// Tiles are used, or there is a reason why not, or the processor has none. The system's list of flags is a second
// opinion; a word of it ends at a blank.
TEST(Isa, TilesOrAReason) {
  const Isa machine = detect_isa();
  const bool tiles = machine.has(Feature::amx_int8) || machine.has(Feature::amx_bf16);
  std::string flags;
  for (std::ifstream info("/proc/cpuinfo"); std::getline(info, flags);)
    if (flags.starts_with("flags")) break;
  const auto listed = [&](const char* flag) { return (flags + " ").find(fmt::format(" {} ", flag)) != flags.npos; };
  if (listed("amx_tile") && (listed("amx_int8") || listed("amx_bf16"))) {
    EXPECT_TRUE(tiles || !amx_refusal().empty());
  }
  EXPECT_FALSE(tiles && !amx_refusal().empty()) << amx_refusal();
  EXPECT_FALSE(tiles && !machine.includes(Isa::avx512));
}

// Every set that tests and benchmarks go through can be chosen by its name.
TEST(Isa, TheVariantsRunHere) {
  const char* before = std::getenv("MILLRACE_ISA");
  const std::string old = before ? before : "";
  for (const Isa isa : isa_variants()) {
    setenv("MILLRACE_ISA", isa_name(isa).c_str(), 1);
    const auto selected = select_isa();
    ASSERT_TRUE(selected.ok()) << selected.error().message;
    EXPECT_EQ(isa_name(*selected), isa_name(isa));
  }
  if (before)
    setenv("MILLRACE_ISA", old.c_str(), 1);
  else
    unsetenv("MILLRACE_ISA");
  EXPECT_EQ(isa_variants().front(), Isa::ref);
  EXPECT_EQ(isa_variants().back(), detect_isa());
}

}  // namespace
}  // namespace millrace
