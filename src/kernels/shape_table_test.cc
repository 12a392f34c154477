// What a table of shapes accepts, and what it says of a matrix.
#include "kernels/shape_table.h"

#include <gtest/gtest.h>

#include "formats/format.h"
#include "kernels/linear.h"

namespace millrace {
namespace {

std::string shape_refusal(std::string_view text) {
  const auto table = ShapeTable::parse(text, "file", Isa::avx512);
  return table.ok() ? "" : table.error().message;
}

TEST(ShapeTable, WritesAndReads) {
  const Format* q4 = find_format("q4_0");
  const ShapeTable made({{q4, 64, 128, 12, 3}, {q4, 128, 64, ShapeTable::kNever}});
  auto read = ShapeTable::parse("{\"kernel_shapes\": " + shapes_json(made, Isa::avx512) + "}", "file", Isa::avx512);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->rows().size(), 2u);
  Weight weight{.format = q4, .rows = 64, .cols = 128};
  EXPECT_EQ(read->tiles_from(weight), 12);
  EXPECT_EQ(read->gemv_to(weight), 3);
  std::swap(weight.rows, weight.cols);
  EXPECT_EQ(read->gemv_to(weight), 0);
  EXPECT_EQ(read->tiles_from(weight), ShapeTable::kNever);
  weight.format = find_format("q8_0");
  EXPECT_EQ(read->tiles_from(weight), 0);
  read->set_gemv(2);  // of all matrices
  EXPECT_EQ(read->gemv_to(weight), 2);
  EXPECT_EQ(read->gemv_to({.format = q4, .rows = 64, .cols = 128}), 3);
}

TEST(ShapeTable, RefusesWhatCannotBe) {
  for (const char* text : {"", "[]", "{}", "{\"kind\": \"piecewise\"}"})
    EXPECT_EQ(shape_refusal(text), "file: has no kernel_shapes; `millrace bench --calibrate -o FILE` writes them");
  const auto with = [](const std::string& rows) {
    return shape_refusal(R"({"kernel_shapes": {"isa": "avx512", "rows": )" + rows + "}}");
  };
  EXPECT_EQ(with("[]"), "");
  EXPECT_EQ(with("7"), "file: kernel_shapes: must have at most 4096 rows");
  EXPECT_EQ(with("[1]"), "file: kernel_shapes: a row has no format");
  EXPECT_EQ(with(R"([{"format": "q9"}])"), "file: kernel_shapes: unknown format 'q9'");
  EXPECT_EQ(with(R"([{"format": "q4_0", "rows": 0}])"),
            "file: kernel_shapes: rows must be a whole number from 1 to 2147483648");
  EXPECT_EQ(with(R"([{"format": "q4_0", "rows": 1, "cols": 32}])"),
            "file: kernel_shapes: tiles_from must be a whole number from 1 to 2147483648");
  EXPECT_EQ(with(R"([{"format": "q4_0", "rows": 1, "cols": 32, "tiles_from": null}])"), "");
  EXPECT_EQ(with(R"([{"format": "q4_0", "rows": 1, "cols": 32, "tiles_from": null, "gemv_to": -1}])"),
            "file: kernel_shapes: gemv_to must be a whole number from 1 to 2147483648");
  EXPECT_EQ(shape_refusal(R"({"kernel_shapes": {"isa": "avx2", "rows": []}})"),
            "file: kernel_shapes: measured with another instruction set than avx512");
}

}  // namespace
}  // namespace millrace
