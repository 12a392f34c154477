// What a table of shapes accepts, and what it says of a matrix.
#include "kernels/shape_table.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "formats/format.h"
#include "kernels/activation.h"
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

std::vector<int64_t> tokens_of_calls;
void (*counted_run)(const MatmulArgs&) = nullptr;
void count_tokens(const MatmulArgs& args) {
  tokens_of_calls.push_back(args.tokens);
  counted_run(args);
}

// The bits are the same (tests/properties/kernel_switches_test.cc); here, that the way is another one.
TEST(ShapeTable, EachTokenAloneUpToItsNumber) {
  const KernelTable kernels = make_kernel_table(detect_isa());
  ThreadPool pool(1);
  const Format* format = find_format("q4_0");
  const std::vector<uint8_t> stored(static_cast<size_t>(64 * format->row_bytes(64)));
  Weight weight{.name = "w", .format = format, .rows = 64, .cols = 64, .data = stored.data()};
  ASSERT_TRUE(pack_weight(weight, kernels, pool).ok());
  MatmulKernel counting = *weight.kernel;
  counted_run = std::exchange(counting.run, count_tokens);
  weight.kernel = &counting;
  const std::vector<float> x(3 * 64, 1.0f);
  std::vector<float> y(3 * 64);
  auto room = AlignedBuffer::allocate(3 * activation_row_bytes(format->activation, 64), "test");
  ASSERT_TRUE(room.ok());
  LinearPart part{.weight = &weight, .y = y.data(), .y_stride = 64};
  part.x = encode_activations(kernels, pool, format->activation, x.data(), 64, 3, 64, room->data());
  const auto calls = [&](int64_t gemv_to) {
    const ShapeTable table({{format, 64, 64, ShapeTable::kNever, gemv_to}});
    tokens_of_calls.clear();
    linear(pool, {&part, 1}, &table);
    return tokens_of_calls;
  };
  EXPECT_EQ(calls(3), std::vector<int64_t>(3, 1));
  EXPECT_EQ(calls(2), std::vector<int64_t>(1, 3));
  EXPECT_EQ(calls(0), std::vector<int64_t>(1, 3));
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
