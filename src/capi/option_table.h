// OptionTable: a table of named options. Each row has the option's type and bounds, and the field that stores its
// value.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/memory_accounts.h"
#include "base/options.h"

namespace millrace {

template <typename Options>
class OptionTable {
 public:
  struct Bytes {  // "8G"
    int64_t Options::*field;
  };
  struct Row {
    OptionSpec spec;
    std::variant<int Options::*, int64_t Options::*, double Options::*, bool Options::*, std::string Options::*, Bytes,
                 std::vector<std::string> Options::*>
        field;  // a list receives one more entry each time
  };
  explicit OptionTable(std::vector<Row> rows) : rows_(std::move(rows)) {}

  // Sets one field. Returns false if no option has this name. Errors: user (the value).
  Result<bool> set(Options& options, const std::string& name, const std::string& value) const {
    for (const Row& row : rows_) {
      if (row.spec.name != name) continue;
      OptionSpec spec = row.spec;
      spec.default_value = value;  // parse_options() checks it
      MILLRACE_TRY(const OptionValues values, parse_options("", {spec}));
      MILLRACE_TRY_VOID(std::visit([&](auto field) { return assign(options, field, values, name); }, row.field));
      return true;
    }
    return false;
  }

  std::string names() const {
    std::string out;
    for (const Row& row : rows_) out += (out.empty() ? "" : ", ") + row.spec.name;
    return out;
  }

 private:
  template <typename Field>
  static Result<void> assign(Options& options, Field field, const OptionValues& values, const std::string& name) {
    if constexpr (std::is_same_v<Field, Bytes>) {
      auto bytes = parse_bytes(values.text(name));
      if (!bytes.ok()) return Error{bytes.error().kind, name + ": " + bytes.error().message};
      options.*field.field = *bytes;
    } else {
      assign_value(options.*field, values, name);
    }
    return {};
  }
  static void assign_value(int& out, const OptionValues& values, const std::string& name) {
    out = static_cast<int>(values.integer(name));
  }
  static void assign_value(int64_t& out, const OptionValues& values, const std::string& name) {
    out = values.integer(name);
  }
  static void assign_value(double& out, const OptionValues& values, const std::string& name) {
    out = values.number(name);
  }
  static void assign_value(bool& out, const OptionValues& values, const std::string& name) {
    out = values.boolean(name);
  }
  static void assign_value(std::string& out, const OptionValues& values, const std::string& name) {
    out = values.text(name);
  }
  static void assign_value(std::vector<std::string>& out, const OptionValues& values, const std::string& name) {
    out.push_back(values.text(name));
  }

  std::vector<Row> rows_;
};

}  // namespace millrace
