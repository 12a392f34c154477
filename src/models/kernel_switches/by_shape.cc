// The way that a product takes by its shape (Hong et al., 2023, "FlashDecoding++"): kernels/shape_table.h.
#include <fmt/format.h>

#include <fstream>

#include "models/kernel_switches/records.h"

namespace millrace {
namespace {

constexpr size_t kMaxBytes = 16 << 20;

Result<void> set_by_shape(const OptionValues& options, ForwardSwitches& switches) {
  const std::string& path = options.text("file");
  if (path.empty()) return {};
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error::user(fmt::format("no file {}", path));
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxBytes) return Error::user(fmt::format("{} is larger than 16 MB", path));
  MILLRACE_TRY(const Isa isa, select_isa());
  MILLRACE_TRY(ShapeTable table, ShapeTable::parse(text, path, isa));
  if (switches.shapes) table.set_gemv(switches.shapes->gemv_to_all());
  switches.shapes = std::make_shared<const ShapeTable>(std::move(table));
  return {};
}

}  // namespace

extern const KernelSwitch kByShape = {.set = set_by_shape};

}  // namespace millrace
