#include "picture_flags.h"

#include "input.h"

namespace millrace {

void PictureFlags::add_to(CLI::App* command, const std::string& what) {
  command->add_option("--picture", path, "Draw " + what + " to this file: .png, .svg or .pdf");
  command->add_option("--picture-theme", theme, "Colours of the picture: light or dark")
      ->check(CLI::IsMember({"light", "dark"}))
      ->capture_default_str();
}

Result<void> PictureFlags::check() const {
  MILLRACE_TRY_VOID(find_picture_theme(theme));
  MILLRACE_TRY_VOID(check_picture("--picture", path));
  return check_writable("--picture", path);
}

Result<void> PictureFlags::write(const Chart& chart) const {
  if (!wanted()) return {};
  MILLRACE_TRY(const PictureTheme colours, find_picture_theme(theme));
  return write_picture(chart, path, colours);
}

}  // namespace millrace
