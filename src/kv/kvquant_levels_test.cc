// Levels of kvquant from a file: which layer and part they serve, and files that are refused.
#include "kv/codecs/kvquant_levels.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "kv/codec.h"
#include "kv/codecs/kvquant.h"
#include "tensor/half.h"

namespace millrace {
namespace {

class KvQuantLevelsFile : public ::testing::Test {
 protected:
  ~KvQuantLevelsFile() override { std::filesystem::remove(path_); }

  std::string refusal(const std::string& text) {
    std::ofstream(path_) << text;
    auto made = find_kv_codec("kvquant:levels=" + path_);
    return made.ok() ? "" : made.error().message;
  }

  std::string path_ =
      (std::filesystem::temp_directory_path() / ("kv_levels_test." + std::to_string(getpid()))).string();
};

NormalCodes codes_of(std::initializer_list<float> values) {
  NormalCodes out{};
  std::copy(values.begin(), values.end(), out.begin());
  return out;
}

// Values that are exactly the levels of one part of one layer, and of no other, come back as they were.
TEST_F(KvQuantLevelsFile, EveryLayerAndPartHasItsOwn) {
  const KvQuantLevels levels{.bits = 2,
                             .layers = {{codes_of({-1, -0.5f, 0.25f, 1}), codes_of({-1, 0, 0.125f, 1})},
                                        {codes_of({-1, -0.875f, 0.5f, 1}), codes_of({-1, -0.25f, 0.75f, 1})}}};
  ASSERT_TRUE(write_kvquant_levels(path_, levels, "a model").ok());
  const auto made = find_kv_codec("kvquant:outliers=0,sink=0,group=32,levels=" + path_);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const KvCodec& codec = **made;
  EXPECT_EQ(codec.text(), "kvquant:bits=2,group=32,outliers=0,sink=0,residual=0,levels=" + levels.digest());
  EXPECT_EQ(levels.digest().size(), 16u);
  constexpr int64_t kTokens = 32, kDim = 32;
  for (size_t from = 0; from < 4; ++from) {
    const KvQuantCodes& source = levels.layers[from / 2];
    const NormalCodes& own = from % 2 == 0 ? source.keys : source.values;
    std::vector<float> rows;
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t d = 0; d < kDim; ++d) rows.push_back(own[static_cast<size_t>((t + d) % 4)] * 8);
    for (size_t with = 0; with < 4; ++with) {
      const KvCodec& layer = codec.layer(static_cast<int64_t>(with / 2));
      const KvPart part = with % 2 == 0 ? KvPart::keys : KvPart::values;
      std::vector<uint8_t> tile(static_cast<size_t>(codec.tile_bytes(kTokens, kDim)));
      std::vector<uint16_t> halves(rows.size());
      layer.store(part, rows.data(), kTokens, kDim, tile.data());
      layer.load(part, make_kernel_table(Isa::ref), tile.data(), kTokens, kDim,
                 reinterpret_cast<uint8_t*>(halves.data()));
      double error = 0;
      for (size_t i = 0; i < rows.size(); ++i)
        error = std::max(error, std::fabs(static_cast<double>(f16_to_f32(halves[i]) - rows[i])));
      EXPECT_EQ(error == 0, from == with) << from << " with the levels of " << with << ": " << error;
    }
  }
  EXPECT_TRUE(codec.check_layers(2).ok());
  EXPECT_EQ(codec.check_layers(3).error().message,
            "KV format kvquant: the levels are of 2 layers, the model has 3; run millrace kv-levels on this model");
}

TEST_F(KvQuantLevelsFile, OthersAreRefused) {
  const std::string head = R"({"file": "millrace KV levels", "bits": 2, "layers": [)";
  const std::string good = R"({"keys": [-1, -0.5, 0.5, 1], "values": [-1, 0, 0.5, 1]})";
  EXPECT_EQ(refusal(head + good + "]}"), "");
  const std::string bad_keys =
      "KV format kvquant: " + path_ + ": layers[1].keys: expected 4 ascending numbers from -1 to 1";
  for (const char* keys :
       {"[-1, 0, 1]", "[-1, 0, 0.5, 1.5]", "[-1, 0.5, 0, 1]", "[-1, 0, null, 1]", "3", "[-1, 0, 0.5, 1e300]"})
    EXPECT_EQ(refusal(head + good + R"(, {"keys": )" + keys + R"(, "values": [-1, 0, 0.5, 1]}]})"), bad_keys) << keys;
  EXPECT_EQ(refusal(head + good + ", 3]}"), bad_keys);
  EXPECT_NE(refusal(head + "]}").find("layers: no list"), std::string::npos);
  EXPECT_NE(refusal(R"({"file": "millrace KV levels", "bits": 5, "layers": []})").find("bits: must be 2, 3 or 4"),
            std::string::npos);
  for (const char* other : {"", "[]", "{}", R"({"file": "another"})", "{\"file\""})
    EXPECT_NE(refusal(other).find("has no KV levels; millrace kv-levels makes such a file"), std::string::npos)
        << other;
  EXPECT_NE(refusal(std::string(2 << 20, ' ')).find("is longer than any KV levels"), std::string::npos);
  std::filesystem::remove(path_);
  EXPECT_NE(find_kv_codec("kvquant:levels=" + path_).error().message.find("cannot be read"), std::string::npos);
  std::ofstream(path_) << head + good + "]}";
  EXPECT_NE(find_kv_codec("kvquant:bits=3,levels=" + path_).error().message.find("has levels of 2 bits, got 3"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace
