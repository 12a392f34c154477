#include "lab_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/ordered_json.h"
#include "input.h"

namespace millrace {
namespace {

constexpr size_t kMaxMaps = 60, kMaxSide = 200;  // maps; rows or columns of one

using MapJson = nlohmann::ordered_json;

Result<std::string> text_of(const MapJson& from, const char* key, const std::string& path) {
  const auto found = from.find(key);
  if (found == from.end() || !found->is_string())
    return Error::corrupt(fmt::format("{}: \"{}\" is not a text", path, key));
  return found->get<std::string>();
}

Result<std::vector<std::string>> texts_of(const MapJson& from, const char* key, const std::string& path) {
  const auto found = from.find(key);
  if (found == from.end() || !found->is_array() || !std::ranges::all_of(*found, &MapJson::is_string))
    return Error::corrupt(fmt::format("{}: \"{}\" is not a list of texts", path, key));
  if (found->size() > kMaxSide)
    return Error::user(
        fmt::format("{}: \"{}\" has {} texts; a map has at most {}", path, key, found->size(), kMaxSide));
  return found->get<std::vector<std::string>>();
}

Result<ChartPanel> map_of(const MapJson& from, const std::string& path) {
  ChartPanel out;
  HeatMap map;
  MILLRACE_TRY(out.title, text_of(from, "title", path));
  MILLRACE_TRY(map.rows, texts_of(from, "rows", path));
  MILLRACE_TRY(map.columns, texts_of(from, "columns", path));
  const auto values = from.find("values");
  const Error shape = Error::corrupt(
      fmt::format("{}: \"values\" of {} has no list of {} numbers from 0 to 1, or nulls, for each of {} rows", path,
                  out.title, map.columns.size(), map.rows.size()));
  if (values == from.end() || !values->is_array() || values->size() != map.rows.size()) return shape;
  for (const MapJson& row : *values) {
    if (!row.is_array() || row.size() != map.columns.size()) return shape;
    map.values.emplace_back();
    for (const MapJson& value : row) {
      if (!value.is_number() && !value.is_null()) return shape;
      if (value.is_number() && !(value.get<double>() >= 0 && value.get<double>() <= 1)) return shape;
      map.values.back().push_back(value.is_null() ? NAN : value.get<double>());
    }
  }
  out.heat = std::move(map);
  return out;
}

}  // namespace

Result<Chart> heat_map_chart(const std::string& path) {
  MILLRACE_TRY(const MapJson json, read_json_file(path));
  if (!json.is_object()) return Error::corrupt(fmt::format("{}: is not a JSON object", path));
  Chart out;
  MILLRACE_TRY(out.title, text_of(json, "title", path));
  MILLRACE_TRY(const std::string x, text_of(json, "x", path));
  MILLRACE_TRY(const std::string y, text_of(json, "y", path));
  const auto maps = json.find("maps");
  if (maps == json.end() || !maps->is_array()) return Error::corrupt(fmt::format("{}: \"maps\" is not a list", path));
  if (maps->size() > kMaxMaps)
    return Error::user(fmt::format("{}: {} maps; a picture has at most {}", path, maps->size(), kMaxMaps));
  for (const MapJson& one : *maps) {
    if (!one.is_object()) return Error::corrupt(fmt::format("{}: a map is not a JSON object", path));
    MILLRACE_TRY(ChartPanel panel, map_of(one, path));
    panel.x.title = x;
    panel.y.title = y;
    out.panels.push_back(std::move(panel));
  }
  out.columns = 3;
  return out;
}

}  // namespace millrace
