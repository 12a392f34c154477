#include "offload/linear_program.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace millrace {
namespace {

// The functions of CLP's interface in C (Clp_C_Interface.h of CLP 1.17) that are used here.
struct Clp {
  void* (*make)() = nullptr;
  void (*remove)(void*) = nullptr;
  void (*set_log_level)(void*, int) = nullptr;
  void (*load)(void*, int columns, int rows, const int* start, const int* index, const double* value,
               const double* column_low, const double* column_high, const double* cost, const double* row_low,
               const double* row_high) = nullptr;
  int (*primal)(void*, int values_pass) = nullptr;
  int (*status)(void*) = nullptr;
  double* (*solution)(void*) = nullptr;
};

Result<Clp> load_clp() {
  constexpr const char* kFile = "libClp.so.1";
  void* library = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);  // stays open
  if (!library)
    return Error::unsupported(
        fmt::format("linear programs need CLP's {}, which is not on this machine; install it (Debian and Ubuntu: "
                    "coinor-libclp1)",
                    kFile));
  Clp clp;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (!function) missing = name;
  };
  find("Clp_newModel", clp.make);
  find("Clp_deleteModel", clp.remove);
  find("Clp_setLogLevel", clp.set_log_level);
  find("Clp_loadProblem", clp.load);
  find("Clp_primal", clp.primal);
  find("Clp_status", clp.status);
  find("Clp_primalColumnSolution", clp.solution);
  if (missing) return Error::unsupported(fmt::format("{} has no {}; CLP 1.17 does", kFile, missing));
  return clp;
}

constexpr int kOptimal = 0, kInfeasible = 1;

}  // namespace

LinearProgram::LinearProgram(int columns)
    : columns_(static_cast<size_t>(columns)),
      low_(columns_.size(), 0.0),
      high_(columns_.size(), 1.0),
      costs_(columns_.size(), 0.0) {}

void LinearProgram::set_bounds(int column, double low, double high) {
  low_[static_cast<size_t>(column)] = low;
  high_[static_cast<size_t>(column)] = high;
}

void LinearProgram::add_row(const std::vector<std::pair<int, double>>& entries, double low, double high) {
  const auto row = static_cast<int>(row_low_.size());
  for (const auto& [column, value] : entries) columns_[static_cast<size_t>(column)].push_back({row, value});
  row_low_.push_back(low);
  row_high_.push_back(high);
}

Result<std::vector<double>> LinearProgram::minimize() const {
  static const Result<Clp> loaded = load_clp();
  MILLRACE_TRY(const Clp clp, loaded);
  std::vector<int> starts = {0}, rows;
  std::vector<double> values;
  for (const auto& column : columns_) {
    for (const Entry& entry : column) {
      rows.push_back(entry.row);
      values.push_back(entry.value);
    }
    starts.push_back(static_cast<int>(rows.size()));
  }
  void* model = clp.make();
  if (!model) return Error::resource("CLP: out of memory");
  clp.set_log_level(model, 0);
  clp.load(model, static_cast<int>(columns_.size()), static_cast<int>(row_low_.size()), starts.data(), rows.data(),
           values.data(), low_.data(), high_.data(), costs_.data(), row_low_.data(), row_high_.data());
  clp.primal(model, 0);
  const int status = clp.status(model);
  std::vector<double> out;
  if (status == kOptimal) out.assign(clp.solution(model), clp.solution(model) + columns_.size());
  clp.remove(model);
  if (status == kInfeasible) return Error::resource("no values satisfy the linear program");
  if (status != kOptimal) return Error::internal(fmt::format("the linear program was not solved, status {}", status));
  return out;
}

}  // namespace millrace
