#include "kernels/shape_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int64_t kMaxRows = 4096;
constexpr int64_t kMaxSize = int64_t{1} << 31;

Error wrong_shape(const std::string& source, std::string_view what) {
  return Error::user(fmt::format("{}: kernel_shapes: {}", source, what));
}

Result<ShapeTable::Row> read_row(const nlohmann::ordered_json& json, const std::string& source) {
  ShapeTable::Row row;
  if (!json.is_object() || !json.contains("format") || !json["format"].is_string())
    return wrong_shape(source, "a row has no format");
  row.format = find_format(json["format"].get<std::string>());
  if (!row.format) return wrong_shape(source, fmt::format("unknown format '{}'", json["format"].get<std::string>()));
  const auto number = [&](const char* key, int64_t most) -> Result<int64_t> {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_integer() || found->get<int64_t>() < 1 || found->get<int64_t>() > most)
      return wrong_shape(source, fmt::format("{} must be a whole number from 1 to {}", key, most));
    return found->get<int64_t>();
  };
  MILLRACE_TRY(row.rows, number("rows", kMaxSize));
  MILLRACE_TRY(row.cols, number("cols", kMaxSize));
  if (json.contains("gemv_to") && json["gemv_to"] != 0) {
    MILLRACE_TRY(row.gemv_to, number("gemv_to", kMaxSize));
  }
  row.tiles_from = ShapeTable::kNever;
  if (json.contains("tiles_from") && json["tiles_from"].is_null()) return row;
  MILLRACE_TRY(row.tiles_from, number("tiles_from", kMaxSize));
  return row;
}

}  // namespace

Result<ShapeTable> ShapeTable::parse(std::string_view text, const std::string& source, Isa isa) {
  const auto json = parse_json(text);
  if (json.is_discarded() || !json.is_object() || !json.contains("kernel_shapes"))
    return Error::user(
        fmt::format("{}: has no kernel_shapes; `millrace bench --calibrate -o FILE` writes them", source));
  const auto& shapes = json["kernel_shapes"];
  if (!shapes.is_object() || !shapes.contains("rows") || !shapes["rows"].is_array() ||
      std::ssize(shapes["rows"]) > kMaxRows)
    return wrong_shape(source, fmt::format("must have at most {} rows", kMaxRows));
  if (!shapes.contains("isa") || shapes["isa"] != isa_name(isa))
    return wrong_shape(source, fmt::format("measured with another instruction set than {}", isa_name(isa)));
  std::vector<Row> rows;
  for (const auto& one : shapes["rows"]) {
    MILLRACE_TRY(rows.emplace_back(), read_row(one, source));
  }
  return ShapeTable(std::move(rows));
}

const ShapeTable::Row* ShapeTable::find(const Weight& weight) const {
  const auto row = std::ranges::find_if(rows_, [&](const Row& one) {
    return one.format == weight.format && one.rows == weight.rows && one.cols == weight.cols;
  });
  return row == rows_.end() ? nullptr : &*row;
}

int64_t ShapeTable::tiles_from(const Weight& weight) const {
  const Row* row = weight.codebook ? nullptr : find(weight);
  return row ? row->tiles_from : 0;
}

int64_t ShapeTable::gemv_to(const Weight& weight) const {
  const Row* row = find(weight);
  return std::max(row ? row->gemv_to : 0, gemv_to_);
}

std::string shapes_json(const ShapeTable& table, Isa isa) {
  nlohmann::ordered_json out = {{"isa", isa_name(isa)}, {"rows", nlohmann::ordered_json::array()}};
  for (const ShapeTable::Row& row : table.rows()) {
    const bool never = row.tiles_from == ShapeTable::kNever;
    out["rows"].push_back({{"format", row.format->name},
                           {"rows", row.rows},
                           {"cols", row.cols},
                           {"tiles_from", never ? nlohmann::ordered_json() : nlohmann::ordered_json(row.tiles_from)},
                           {"gemv_to", row.gemv_to}});
  }
  return out.dump();
}

}  // namespace millrace
